#include "rotary_table.h"

#include <cmath>
#include <numbers>

namespace slimexx::model {
namespace {

// Llama-3.1's scaling: long waves are slowed by `factor`, short ones kept, those between blended.
double scale_llama3(const RopeSpec& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return frequency;
  if (wavelength > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const RopeSpec& rope) {
  std::vector<float> result;
  for (int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    double frequency =
        std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_dim));
    if (rope.scaling == RopeScaling::kLinear) frequency /= rope.factor;
    if (rope.scaling == RopeScaling::kLlama3) frequency = scale_llama3(rope, frequency);
    result.push_back(static_cast<float>(frequency));
  }
  return result;
}

void fill_rotary_tables(const RopeSpec& rope, tensor::Tensor cos, tensor::Tensor sin) {
  const std::vector<float> frequencies = inverse_frequencies(rope);
  const auto half = static_cast<int64_t>(frequencies.size());
  for (int64_t p = 0; p < cos.dim(0); ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(p) * frequencies[static_cast<size_t>(i)];
      cos.f32()[p * half + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      sin.f32()[p * half + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace slimexx::model

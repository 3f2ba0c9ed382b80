#include "model/rotary_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace slimexx::model {
namespace {

// Llama-3.1 scaling: divides low frequencies by `factor`, keeps high ones and interpolates between
// them.
float scale_llama3(const RopeSpec& rope, float frequency) {
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto factor = static_cast<float>(rope.factor);
  if (wavelength < static_cast<float>(original / rope.high_freq_factor)) return frequency;
  if (wavelength > static_cast<float>(original / rope.low_freq_factor)) return frequency / factor;
  const float smooth =
      (static_cast<float>(original) / wavelength - static_cast<float>(rope.low_freq_factor)) /
      static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// Index of the pair that makes `rotations` turns over the original context: a boundary of yarn's
// ramp.
double yarn_pair(const RopeSpec& rope, double rotations) {
  return static_cast<double>(rope.rotary_dim) *
         std::log(static_cast<double>(rope.original_max_positions) /
                  (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

// Yarn: keeps high frequencies, divides low ones by `factor` and interpolates between them.
float scale_yarn(const RopeSpec& rope, int64_t pair, float frequency) {
  const auto last = static_cast<double>(rope.rotary_dim - 1);
  const double low = std::max(std::floor(yarn_pair(rope, rope.beta_fast)), 0.0);
  double high = std::min(std::ceil(yarn_pair(rope, rope.beta_slow)), last);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
  const auto slowed = static_cast<float>(ramp);
  return frequency / static_cast<float>(rope.factor) * slowed + frequency * (1 - slowed);
}

}  // namespace

double yarn_scale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// Rounds to f32 in the same places as transformers: exponent, power, reciprocal and each step of a
// scaling. An error of one unit in the last place of a frequency is 6e-5 radians at position 1000.
std::vector<float> inverse_frequencies(const RopeSpec& rope) {
  std::vector<float> result;
  const auto theta = static_cast<double>(static_cast<float>(rope.theta));
  for (int64_t i = 0; i < rope.rotary_dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rope.rotary_dim);
    // In double, rounded once: the result of an f32 power depends on the C library.
    const auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    float frequency = 1.0f / power;
    if (rope.scaling == RopeScaling::kLinear) frequency /= static_cast<float>(rope.factor);
    if (rope.scaling == RopeScaling::kLlama3) frequency = scale_llama3(rope, frequency);
    if (rope.scaling == RopeScaling::kYarn) frequency = scale_yarn(rope, i, frequency);
    result.push_back(frequency);
  }
  return result;
}

void fill_rotary_tables(const RopeSpec& rope, int64_t num_positions, std::span<float> cos,
                        std::span<float> sin) {
  const std::vector<float> frequencies = inverse_frequencies(rope);
  const auto scale = static_cast<float>(rope.table_scale);
  size_t at = 0;
  for (int64_t p = 0; p < num_positions; ++p) {
    for (const float frequency : frequencies) {
      const float angle = static_cast<float>(p) * frequency;
      cos[at] = scale * static_cast<float>(std::cos(static_cast<double>(angle)));
      sin[at++] = scale * static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

}  // namespace slimexx::model

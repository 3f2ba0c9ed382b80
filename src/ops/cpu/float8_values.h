// What the CPU ops on FP8 share: the values of all bytes, and the largest magnitude of a group.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "slimexx/tensor/dtype.h"

namespace slimexx::ops::cpu {

// The value of each byte: a look-up is faster than the branches of f8_e4m3_to_f32.
inline const std::array<float, 256>& f8_values() {
  static const std::array<float, 256> table = [] {
    std::array<float, 256> values{};
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = tensor::f8_e4m3_to_f32(static_cast<uint8_t>(i));
    return values;
  }();
  return table;
}

// Larger patterns are larger magnitudes; infinity and NaN are above all numbers.
inline uint32_t f8_magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

inline float f8_largest(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, f8_magnitude(x[i]));
  return std::bit_cast<float>(most);
}

}  // namespace slimexx::ops::cpu

// Rounding to FP8 (e4m3, without infinities) and the scales of its blocks. Only integers and single
// IEEE operations, so that every device and compiler gets the same bytes.
#pragma once
#include <bit>
#include <cstdint>

namespace slimexx::tensor {

inline constexpr float kF8E4M3Max = 448;
inline constexpr uint8_t kF8E4M3Nan = 0x7F;

// Nearest value, ties to even. Magnitudes above kF8E4M3Max become it; NaN stays NaN.
inline uint8_t f32_to_f8_e4m3(float x) {
  constexpr uint32_t kSaturated = 0x43E80000;  // 464, halfway to the first value that is missing
  constexpr uint32_t kLeastNormal = uint32_t{127 - 6} << 23;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (magnitude > 0x7F800000) return kF8E4M3Nan;
  if (magnitude >= kSaturated) return sign | 0x7E;
  if (magnitude < kLeastNormal) {
    // Adding 2^14 rounds to its last bit, 2^-9, the step of subnormal values.
    constexpr uint32_t kAdded = uint32_t{127 + 14} << 23;
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kAdded);
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(sum) - kAdded);
  }
  const uint32_t odd = magnitude >> 20 & 1;
  const uint32_t rounded = magnitude + 0x7FFFF + odd - (uint32_t{127 - 7} << 23);
  return sign | static_cast<uint8_t>(rounded >> 20);
}

// How the scale of a block follows from its largest magnitude, `amax`.
enum class F8ScaleRule : uint8_t {
  kPowerOfTwo,  // the least power of two by which amax becomes at most 448; 1 for zeros
  kFloat,       // amax / 448, with amax at least 1e-12: as slime's conversion does
};

// `amax` is not negative. A NaN or an infinity in a block gives NaN, which no reader overlooks.
inline float f8_scale(float amax, F8ScaleRule rule) {
  const auto bits = std::bit_cast<uint32_t>(amax);
  if (bits >= 0x7F800000) return std::bit_cast<float>(uint32_t{0x7FC00000});
  if (rule == F8ScaleRule::kFloat) return (amax < 1e-12f ? 1e-12f : amax) / kF8E4M3Max;
  if (bits == 0) return 1;
  // amax = 1.m 2^E, and 448 = 1.75 2^8.
  const uint32_t mantissa = bits & 0x7FFFFF;
  const int exponent = static_cast<int>(bits >> 23) - 8 + (mantissa > 0x600000 ? 1 : 0);
  return std::bit_cast<float>(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

}  // namespace slimexx::tensor

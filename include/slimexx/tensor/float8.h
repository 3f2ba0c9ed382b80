// Rounding to FP8 (e4m3, without infinities) and the scales of its blocks. Only integers and single
// IEEE operations, so that every device and compiler gets the same bytes. Kernels use these
// functions too.
#pragma once
#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define SLX_F8_FUNCTION __host__ __device__ inline
#else
#define SLX_F8_FUNCTION inline
#endif

namespace slimexx::tensor {

SLX_F8_FUNCTION uint32_t f8_bits_of(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<uint32_t>(x);
#endif
}
SLX_F8_FUNCTION float f8_float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

inline constexpr float kF8E4M3Max = 448;
inline constexpr uint8_t kF8E4M3Nan = 0x7F;

// Nearest value, ties to even. Magnitudes above kF8E4M3Max become kF8E4M3Max; NaN stays NaN.
SLX_F8_FUNCTION uint8_t f32_to_f8_e4m3(float x) {
  constexpr uint32_t kSaturated = 0x43E80000;  // 464, halfway from 448, the largest value, to 480
  constexpr uint32_t kLeastNormal = uint32_t{127 - 6} << 23;
  const uint32_t bits = f8_bits_of(x);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (magnitude > 0x7F800000) return kF8E4M3Nan;
  if (magnitude >= kSaturated) return sign | 0x7E;
  if (magnitude < kLeastNormal) {
    // Adding 2^14 rounds to 2^-9, the last bit of 2^14 in float and the step of subnormal e4m3
    // values.
    constexpr uint32_t kAdded = uint32_t{127 + 14} << 23;
    const float sum = f8_float_of(magnitude) + f8_float_of(kAdded);
    return sign | static_cast<uint8_t>(f8_bits_of(sum) - kAdded);
  }
  const uint32_t odd = magnitude >> 20 & 1;
  const uint32_t rounded = magnitude + 0x7FFFF + odd - (uint32_t{127 - 7} << 23);
  return sign | static_cast<uint8_t>(rounded >> 20);
}

// How the scale of a block follows from its largest magnitude, `amax`.
enum class F8ScaleRule : uint8_t {
  kPowerOfTwo,  // the least power of two s with amax / s <= 448; 1 for zeros
  kFloat,       // amax / 448, with amax at least 1e-12: as slime's conversion does
};

// `amax` is not negative. A NaN or an infinity in a block gives a NaN scale, so that no reader
// overlooks the fault.
SLX_F8_FUNCTION float f8_scale(float amax, F8ScaleRule rule) {
  const uint32_t bits = f8_bits_of(amax);
  if (bits >= 0x7F800000) return f8_float_of(0x7FC00000);
  if (rule == F8ScaleRule::kFloat) return (amax < 1e-12f ? 1e-12f : amax) / kF8E4M3Max;
  if (bits == 0) return 1;
  // amax = 1.m 2^E, and 448 = 1.75 2^8.
  const uint32_t mantissa = bits & 0x7FFFFF;
  const int exponent = static_cast<int>(bits >> 23) - 8 + (mantissa > 0x600000 ? 1 : 0);
  return f8_float_of(static_cast<uint32_t>(exponent < 1 ? 1 : exponent) << 23);
}

// The scale of a row's 128 activations, and the factor by which they are quantised.
struct F8RowScale {
  float scale, factor;
};

// `amax` is not negative. A NaN or an infinity makes both NaN, and so all 128 values.
SLX_F8_FUNCTION F8RowScale f8_row_scale(float amax) {
  const float nan = f8_float_of(0x7FC00000);
  if (f8_bits_of(amax) >= 0x7F800000) return {nan, nan};
  const float a = amax < 1e-10f ? 1e-10f : amax;
  return {a / kF8E4M3Max, kF8E4M3Max / a};
}

// The scale of a group of cached keys or values: amax / 448, rounded up to a bf16 value, and its
// inverse. A cached value reads as the product of its e4m3 value and the scale, rounded to the
// compute type. The product has at most 12 significant bits, so float32 holds it exactly. `amax` is
// not negative. A NaN or an infinity makes both NaN, and so all values of the group.
SLX_F8_FUNCTION F8RowScale f8_key_scale(float amax) {
  const float nan = f8_float_of(0x7FC00000);
  if (f8_bits_of(amax) >= 0x7F800000) return {nan, nan};
  const float exact = (amax < 1e-10f ? 1e-10f : amax) / kF8E4M3Max;
  const float scale = f8_float_of((f8_bits_of(exact) + 0xFFFF) & 0xFFFF0000);
  return {scale, 1 / scale};
}

// A cached row of latent attention in FP8: `rank` e4m3 values, one f32 scale (f8_key_scale) per
// group of kF8LatentGroup of them (the last group may be narrower), then `rotary_width` elements in
// the compute type. Zeros pad each part to a multiple of 16 bytes. So a rank of 512 and 64 rotated
// bf16 elements need 656 bytes.
inline constexpr int64_t kF8LatentGroup = 128;
struct F8LatentRow {
  int64_t rank = 0, rotary_width = 0;
  int64_t groups = 0, scales_at = 0, rotary_at = 0;  // offsets in bytes
  int64_t bytes = 0;                                 // of a row
};
constexpr F8LatentRow latent_f8_row(int64_t rank, int64_t rotary_width, int64_t element_bytes = 2) {
  const auto pad = [](int64_t bytes) { return (bytes + 15) / 16 * 16; };
  const int64_t groups = (rank + kF8LatentGroup - 1) / kF8LatentGroup;
  const int64_t scales_at = pad(rank), rotary_at = scales_at + pad(4 * groups);
  return {rank,      rotary_width, groups,
          scales_at, rotary_at,    rotary_at + pad(element_bytes * rotary_width)};
}
constexpr int64_t latent_f8_row_bytes(int64_t rank, int64_t rotary_width) {
  return latent_f8_row(rank, rotary_width).bytes;
}

}  // namespace slimexx::tensor

// Operands with wide ranges or cancelling neighbours. Tensor cores align, truncate and cancel terms
// within a step of k, so such values show whether both operand orders give the same bits.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {

enum class Values {
  kNormal,
  kExponents,   // exponents evenly from -24 to 24
  kZeros,       // kExponents, but a quarter are zeros of either sign and a quarter denormal
  kCancelling,  // neighbours in a row are x and -x, except for one bit in every third pair
  kMassive,     // normal, but every 53rd column is 2^12 times as large
  kInfinite,    // kExponents with an infinity every 40,009 values
};
inline constexpr Values kFiniteValues[] = {Values::kExponents, Values::kZeros, Values::kCancelling,
                                           Values::kMassive};
inline const char* name_values(Values values) {
  constexpr const char* kNames[] = {"normal",     "exponents", "zeros",
                                    "cancelling", "massive",   "infinite"};
  return kNames[static_cast<int>(values)];
}

__device__ inline float draw_normal(uint64_t seed, int64_t i) {
  const uint64_t at = seed * 0x9e3779b97f4a7c15ull + 2 * static_cast<uint64_t>(i);
  const float u = (static_cast<float>(mix_bits(at) >> 8) + 1) * 0x1p-24f;
  const float v = static_cast<float>(mix_bits(at + 1)) * 0x1p-32f;
  return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

// A value in [1, 2) with 8 significant bits, times 2^-24 to 2^24, with a random sign.
__device__ inline float draw_exponents(uint64_t seed, int64_t i) {
  const uint32_t bits = mix_bits(seed * 0xd1b54a32d192ed03ull + static_cast<uint64_t>(i));
  const float mantissa = 1.0f + static_cast<float>(bits & 127) * 0x1p-7f;
  const int exponent = static_cast<int>((bits >> 7) % 49) - 24;
  return ldexpf((bits >> 31) != 0 ? -mantissa : mantissa, exponent);
}

__device__ inline float draw_value(Values values, int64_t columns, uint64_t seed, int64_t i) {
  const int64_t column = i % columns;
  switch (values) {
    case Values::kNormal:
      return draw_normal(seed, i);
    case Values::kExponents:
      return draw_exponents(seed, i);
    case Values::kZeros: {
      const uint32_t bits = mix_bits(~seed * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(i));
      const float sign = (bits & 4) != 0 ? -1.0f : 1.0f;
      if (bits % 4 == 0) return sign * 0.0f;
      // bf16 has denormals from 2^-133.
      if (bits % 4 == 1) return sign * static_cast<float>(1 + (bits >> 3) % 127) * 0x1p-133f;
      return draw_exponents(seed, i);
    }
    case Values::kCancelling: {
      const float first = draw_exponents(seed, i - column % 2);
      if (column % 2 == 0) return first;
      return column / 2 % 3 == 0 ? -first * (1.0f + 0x1p-7f) : -first;
    }
    case Values::kMassive:
      return draw_normal(seed, i) * (column % 53 == 7 ? 0x1p12f : 1.0f);
    case Values::kInfinite:
      return i % 40009 == 40008 ? copysignf(__int_as_float(0x7f800000), draw_exponents(seed, i))
                                : draw_exponents(seed, i);
  }
  return 0.0f;
}

// Fills rows of `columns` elements, times scale. With kCancelling the sums of a product cancel only
// if the neighbours in the product's other operand are equal; `mirrored` makes them equal.
static __global__ void fill_values(__nv_bfloat16* out, int64_t count, int64_t columns,
                                   Values values, bool mirrored, uint64_t seed, float scale) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const bool is_equal = mirrored && values == Values::kCancelling;
    const int64_t at = is_equal ? i - i % columns % 2 : i;
    out[i] = __float2bfloat16_rn(scale * draw_value(values, columns, seed, at));
  }
}

}  // namespace slimexx::kernels::testing

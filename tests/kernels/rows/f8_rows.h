// Rounds rows through FP8 on the host, by the functions of tensor/float8.h: the dequantised rows,
// and the bytes that an FP8 cache has for them. Elements of two bytes, so that rows of bytes are
// Bits.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "slimexx/tensor/float8.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

// The values of all e4m3 bytes.
inline const std::array<float, 256> kF8Values = [] {
  std::array<float, 256> values{};
  for (int byte = 0; byte < 256; ++byte) {
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    const float magnitude = exponent == 0 ? std::ldexp(float(mantissa), -9)
                                          : std::ldexp(float(8 + mantissa), exponent - 10);
    values[byte] = byte & 0x80 ? -magnitude : magnitude;
    if ((byte & 0x7f) == tensor::kF8E4M3Nan) values[byte] = std::nanf("");
  }
  return values;
}();

// Rounds `count` elements with one scale, which it returns; `bytes` gets their e4m3.
inline float round_group(uint16_t* x, uint8_t* bytes, int64_t count) {
  float amax = 0;
  bool is_nan = false;
  for (int64_t i = 0; i < count; ++i) {
    amax = std::max(amax, std::abs(to_float(x[i])));
    is_nan = is_nan || std::isnan(to_float(x[i]));
  }
  const tensor::F8RowScale s = tensor::f8_key_scale(is_nan ? std::nanf("") : amax);
  for (int64_t i = 0; i < count; ++i) {
    bytes[i] = tensor::f32_to_f8_e4m3(to_float(x[i]) * s.factor);
    x[i] = round_to_bf16(kF8Values[bytes[i]] * s.scale);
  }
  return s.scale;
}

// Rounds the first `rank` elements of each of `rows`, which are `stride` apart. Returns the rows of
// bytes, `gap` elements of 0xffff after each.
inline Bits round_latent(Bits& rows, int64_t stride, int64_t rank, int64_t rotary, int64_t gap) {
  const tensor::F8LatentRow layout = tensor::latent_f8_row(rank, rotary);
  const int64_t count = static_cast<int64_t>(rows.size()) / stride,
                row_bytes = layout.bytes + 2 * gap;
  std::vector<uint8_t> bytes(static_cast<size_t>(count * row_bytes), 0xff);
  for (int64_t r = 0; r < count; ++r) {
    uint8_t* to = bytes.data() + r * row_bytes;
    uint16_t* from = rows.data() + r * stride;
    std::fill_n(to, layout.bytes, uint8_t{0});
    for (int64_t at = 0; at < rank; at += tensor::kF8LatentGroup) {
      const float scale =
          round_group(from + at, to + at, std::min(tensor::kF8LatentGroup, rank - at));
      std::memcpy(to + layout.scales_at + at / tensor::kF8LatentGroup * 4, &scale, 4);
    }
    std::memcpy(to + layout.rotary_at, from + rank, static_cast<size_t>(2 * rotary));
  }
  Bits result(bytes.size() / 2);
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

// Multiplies each group of 128 columns of each row by a power of two from 2^-spread to 2^spread.
inline void spread_groups(Bits& rows, int64_t stride, int64_t columns, int spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t row = 0; row < rows.size(); row += static_cast<size_t>(stride)) {
    int exponent = 0;
    for (int64_t i = 0; i < columns; ++i) {
      if (i % tensor::kF8LatentGroup == 0)
        exponent = static_cast<int>(random() % static_cast<uint64_t>(2 * spread + 1)) - spread;
      uint16_t& x = rows[row + static_cast<size_t>(i)];
      x = round_to_bf16(std::ldexp(to_float(x), exponent));
    }
  }
}

}  // namespace slimexx::kernels::testing

// The inputs of the FP8 quantisers' cases, and host arithmetic of bf16 and e4m3.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <vector>

#include "slimexx/kernels/float8.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {

struct CheckCounts {
  int comparisons = 0, failures = 0;
  // Counts a comparison. True if a failure is to be described: the first 40.
  bool fails(bool is_equal) {
    ++comparisons;
    return !is_equal && ++failures <= 40;
  }
};

inline float widen_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
inline uint16_t round_to_bf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFF) > 0x7F800000) return 0x7FFF;
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}
inline float f8_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float x = exponent == 0 ? std::ldexp(float(mantissa), -9)
                          : std::ldexp(8.0f + float(mantissa), exponent - 10);
  if ((bits & 0x7F) == 0x7F) x = std::bit_cast<float>(0x7FC00000);
  return bits >> 7 != 0 ? -x : x;
}

template <class T>
std::vector<T> to_host(const DeviceArray<T>& from) {
  std::vector<T> values(static_cast<size_t>(from.count()));
  SLX_CUDA(
      cudaMemcpy(values.data(), from.data(), values.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}
template <class T>
DeviceArray<T> to_device(const std::vector<T>& from) {
  DeviceArray<T> values(static_cast<int64_t>(from.size()));
  SLX_CUDA(cudaMemcpy(values.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
  return values;
}

// The contents of a matrix; `name` is for reports.
struct QuantiseData {
  const char* name;
  int64_t rows, columns;
  std::vector<uint16_t> x;
};

inline QuantiseData draw_data(Values values, int64_t rows, int64_t columns, float scale = 1) {
  DeviceArray<__nv_bfloat16> x(rows * columns);
  fill_values<<<1024, 256>>>(x.data(), x.count(), columns, values, false, 31, scale);
  SLX_CUDA(cudaDeviceSynchronize());
  QuantiseData data{name_values(values), rows, columns,
                    std::vector<uint16_t>(static_cast<size_t>(x.count()))};
  SLX_CUDA(cudaMemcpy(data.x.data(), x.data(), data.x.size() * 2, cudaMemcpyDeviceToHost));
  return data;
}

// All bf16 patterns, 127 per group of 128. All patterns occur 16 times, each time with another
// magnitude of the last value of the groups.
inline QuantiseData draw_all_patterns() {
  QuantiseData data{"all patterns", 16 * 520, 128, {}};
  for (int64_t row = 0; row < data.rows; ++row) {
    for (int64_t i = 0; i < 127; ++i) data.x.push_back(static_cast<uint16_t>(row % 520 * 127 + i));
    data.x.push_back(static_cast<uint16_t>(row / 520 * 0x7F7 + 0x15));
  }
  return data;
}

// Zero rows, denormal rows, a NaN, an infinity, an outlier, and groups at the limits of the rules.
inline QuantiseData draw_edges(int64_t rows, int64_t columns) {
  QuantiseData data = draw_data(Values::kNormal, rows, columns);
  data.name = "edges";
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < columns; ++i) {
      uint16_t& x = data.x[static_cast<size_t>(row * columns + i)];
      const int64_t kind = row / 64 % 9;
      if (kind == 0) x = static_cast<uint16_t>(i % 2 << 15);
      if (kind == 1) x = static_cast<uint16_t>(x & 0x807F);
      if (kind == 2 && i % 128 == 77 && row % 64 == 5) x = i % 256 < 128 ? 0x7FC1 : 0xFFA0;
      if (kind == 3 && i % 128 == 3 && row % 64 == 60) x = i % 256 < 128 ? 0x7F80 : 0xFF80;
      if (kind == 4 && i % 128 == 127) x = 0x4B00;
      if (kind == 5) x = static_cast<uint16_t>(0x3FE0 + (i / 128 + row) % 2);  // 1.75 and the next
      if (kind == 6) x = static_cast<uint16_t>(0x7F7F - i % 128);              // the largest
      if (kind == 7) x = static_cast<uint16_t>(0x2ED0 + i % 32);               // around 1e-10
      if (kind == 8) x = static_cast<uint16_t>(0x0080 + i % 128);              // the least normal
    }
  }
  return data;
}

inline uint32_t largest_pattern(const QuantiseData& data, int64_t row, int64_t column,
                                int64_t rows) {
  uint32_t most = 0;
  for (int64_t i = 0; i < rows * 128; ++i) {
    const uint16_t bits =
        data.x[static_cast<size_t>((row + i / 128) * data.columns + column + i % 128)];
    most = std::max(most, uint32_t{bits} << 16 & 0x7FFFFFFF);
  }
  return most;
}

}  // namespace slimexx::kernels::testing

// Rows of logits for the vocabulary check: made from a seed on the host, and read back and compared
// there.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/vocabulary/launch.cuh"
#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

inline int failures = 0;

// Reports the first few mismatches of a run.
template <class... Args>
void fail(const char* format, Args... args) {
  if (++failures > 20) return;
  std::printf("FAIL ");
  std::printf(format, args...);
  std::printf("\n");
}

inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(float)) == 0; }

template <class T>
DeviceArray<T> upload(const std::vector<T>& host) {
  DeviceArray<T> device(static_cast<int64_t>(host.size()));
  SLX_CUDA(cudaMemcpy(device.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

template <class T>
std::vector<T> download(const T* device, int64_t count) {
  std::vector<T> host(static_cast<size_t>(count));
  SLX_CUDA(cudaMemcpy(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}
template <class T>
std::vector<T> download(const DeviceArray<T>& device) {
  return download(device.data(), device.count());
}

enum class Shape { kNormal, kPeaked, kFlat, kEqual, kTies, kHoles, kHuge, kSpike, kCount };
inline const char* name_of(Shape shape) {
  constexpr const char* kNames[] = {"normal", "peaked", "flat", "equal",
                                    "ties",   "holes",  "huge", "spike"};
  return kNames[static_cast<int>(shape)];
}

inline void fill_row(float* row, int64_t columns, Shape shape, uint64_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed * 2654435761u + 17));
  std::normal_distribution<float> normal;
  for (int64_t c = 0; c < columns; ++c) {
    const float x = normal(random);
    switch (shape) {
      case Shape::kNormal:
        row[c] = 2.5f * x + 3;
        break;
      case Shape::kPeaked:
        row[c] = 8 * x - 20;
        break;
      case Shape::kFlat:
        row[c] = 0.01f * x;
        break;
      case Shape::kEqual:
        row[c] = 1.25f;
        break;
      case Shape::kTies:
        row[c] = std::round(3 * x) / 2 * (c % 2 ? 1.0f : -1.0f);
        break;
      case Shape::kHoles:
        row[c] = c / 300 % 2 == 0 || c % 3 == 1 ? -vocabulary::kInfinity : 2 * x;
        break;
      case Shape::kHuge:
        row[c] = 1e30f * x;
        break;
      case Shape::kSpike:
        row[c] = c == columns / 2 ? 90.0f : x;
        break;
      case Shape::kCount:
        break;
    }
  }
  // Some column always has a finite logit.
  if (shape == Shape::kHoles) row[columns - 1] = 1.5f;
}

// Copies on host and device; columns after the row's end hold NaN, and must be neither read nor
// written.
struct Rows {
  int64_t rows, columns, stride;
  std::vector<float> host;
  DeviceArray<float> device;

  Rows(int64_t rows_, int64_t columns_, int64_t padding, uint64_t seed,
       Shape first = Shape::kNormal, bool mixed = true)
      : rows(rows_),
        columns(columns_),
        stride((columns_ + padding + 3) / 4 * 4),
        host(static_cast<size_t>(rows * stride), NAN),
        device(rows * stride) {
    for (int64_t r = 0; r < rows; ++r) {
      const auto shape = static_cast<Shape>((static_cast<int64_t>(first) + (mixed ? r : 0)) %
                                            static_cast<int64_t>(Shape::kCount));
      fill_row(row(r), columns, shape, seed + static_cast<uint64_t>(r));
    }
    send();
  }
  float* row(int64_t r) { return host.data() + r * stride; }
  void send() {
    SLX_CUDA(cudaMemcpy(device.data(), host.data(), host.size() * sizeof(float),
                        cudaMemcpyHostToDevice));
  }
  LogitRows view() const { return {device.data(), stride, rows, columns}; }
  LogitRows view(int64_t r) const { return {device.data() + r * stride, stride, 1, columns}; }
};

// log sum exp and entropy in double.
struct RowFacts {
  double lse, entropy;
};
inline RowFacts measure_row(const float* z, int64_t columns) {
  double maximum = -INFINITY, sum = 0, weighted = 0;
  for (int64_t c = 0; c < columns; ++c) maximum = std::fmax(maximum, static_cast<double>(z[c]));
  for (int64_t c = 0; c < columns; ++c) {
    const double d = static_cast<double>(z[c]) - maximum, e = std::exp(d);
    sum += e;
    if (e > 0) weighted += e * d;
  }
  return {maximum + std::log(sum), std::log(sum) - weighted / sum};
}

}  // namespace slimexx::kernels::testing

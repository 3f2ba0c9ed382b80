// Guarded arrays, random values and comparisons for the checks of row and optimizer kernels.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/device_array.h"

namespace slimexx::kernels::testing {

inline int comparisons = 0, failures = 0;
inline std::string current_case;  // printed with each mismatch
inline uint64_t current_seed = 0;

inline float to_float(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float f;
  std::memcpy(&f, &wide, sizeof(f));
  return f;
}
inline float to_float(float f) { return f; }
inline double to_float(double f) { return f; }
inline double to_float(int32_t i) { return i; }
inline double to_float(int64_t i) { return static_cast<double>(i); }
inline uint16_t round_to_bf16(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof(bits));
  if (std::isnan(f)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// n elements on the device between two guards that must not change, `shift` elements after an
// aligned address.
template <class T>
class Array {
 public:
  static constexpr int64_t kGuard = 256;
  explicit Array(int64_t n, int64_t shift = 0) : n_(n), shift_(shift), all_(n + 2 * kGuard + 8) {
    all_.set_bytes(0xff);
  }
  Array(const std::vector<T>& values, int64_t shift = 0)
      : Array(static_cast<int64_t>(values.size()), shift) {
    set(values);
  }
  T* data() const { return all_.data() + kGuard + shift_; }
  // Sets the first elements; `values` may be shorter than the array.
  void set(const std::vector<T>& values) const {
    const auto n = std::min(n_, static_cast<int64_t>(values.size()));
    if (n > 0) SLX_CUDA(cudaMemcpy(data(), values.data(), bytes(n), cudaMemcpyHostToDevice));
  }
  std::vector<T> get() const {
    std::vector<T> all(static_cast<size_t>(all_.count()));
    SLX_CUDA(cudaMemcpy(all.data(), all_.data(), bytes(all_.count()), cudaMemcpyDeviceToHost));
    const auto first = all.begin() + kGuard + shift_;
    check_guard(all.data(), kGuard + shift_, "before");
    check_guard(&*first + n_, all_.count() - kGuard - shift_ - n_, "after");
    return {first, first + n_};
  }

 private:
  static size_t bytes(int64_t count) { return static_cast<size_t>(count) * sizeof(T); }
  static void check_guard(const T* p, int64_t count, const char* where) {
    const auto* byte = reinterpret_cast<const unsigned char*>(p);
    for (size_t i = 0; i < bytes(count); ++i) {
      if (byte[i] == 0xff) continue;
      std::printf("FAIL %s: byte %zu %s the array was written\n", current_case.c_str(), i, where);
      ++failures;
      return;
    }
  }
  int64_t n_, shift_;
  DeviceArray<T> all_;
};
using Bits = std::vector<uint16_t>;
using Bf16Array = Array<uint16_t>;
using FloatArray = Array<float>;

inline std::vector<float> random_floats(int64_t n, float scale = 1.0f) {
  std::mt19937_64 engine(++current_seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = normal(engine);
  return values;
}
inline std::vector<uint16_t> random_bf16(int64_t n, float scale = 1.0f, float mean = 0.0f) {
  std::vector<uint16_t> values(static_cast<size_t>(n));
  const std::vector<float> wide = random_floats(n, scale);
  for (size_t i = 0; i < values.size(); ++i) values[i] = round_to_bf16(mean + wide[i]);
  return values;
}

// Counts a failure; returns true for the first three of a kind, which are printed.
inline bool report_failure(const char* what) {
  static std::map<std::string, int> printed;
  ++failures;
  return ++printed[current_case.substr(0, current_case.find(' ')) + what] <= 3;
}

// Compares bits; `width` converts indices to the printed coordinates.
template <class T>
void expect_bits(const char* what, const std::vector<T>& got, const std::vector<T>& expected,
                 int64_t width) {
  ++comparisons;
  if (got.size() != expected.size()) {
    std::printf("FAIL %s %s: sizes %zu and %zu\n", current_case.c_str(), what, got.size(),
                expected.size());
    ++failures;
    return;
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) == 0) continue;
    if (report_failure(what)) {
      std::printf("FAIL %s %s: row %ld column %ld is %.9g, expected the bits of %.9g (seed %lu)\n",
                  current_case.c_str(), what, long(i) / width, long(i) % width,
                  double(to_float(got[i])), double(to_float(expected[i])),
                  static_cast<unsigned long>(current_seed));
    }
    return;
  }
}

// The allowed difference from the exact value: half a unit in the last place of the type, plus
// `slack` times the sum of the terms' magnitudes for fp32 arithmetic.
struct Exact {
  double value = 0, magnitude = 0;
};
inline constexpr double kSlack = 0x1p-20;

template <class T>
void expect_close(const char* what, const std::vector<T>& got, const std::vector<Exact>& expected,
                  int64_t width, double slack = kSlack) {
  ++comparisons;
  constexpr double kHalfUnit = sizeof(T) == 2 ? 0x1p-8 : 0x1p-24;
  constexpr double kSmallest = sizeof(T) == 2 ? 0x1p-133 : 0x1p-149;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double value = to_float(got[i]), exact = expected[i].value;
    const double allowed =
        kHalfUnit * 1.002 * std::abs(exact) + slack * expected[i].magnitude + kSmallest;
    if (std::abs(value - exact) <= allowed || (std::isnan(value) && std::isnan(exact))) continue;
    if (report_failure(what)) {
      std::printf("FAIL %s %s: row %ld column %ld is %.9g, expected %.9g +- %.3g (seed %lu)\n",
                  current_case.c_str(), what, long(i) / width, long(i) % width, value, exact,
                  allowed, static_cast<unsigned long>(current_seed));
    }
    return;
  }
}

inline void expect_status(const char* what, cudaError_t got, cudaError_t expected) {
  ++comparisons;
  if (got == expected) return;
  ++failures;
  std::printf("FAIL %s %s: %s, expected %s\n", current_case.c_str(), what, cudaGetErrorName(got),
              cudaGetErrorName(expected));
}

// `fault`: what a launch returned.
inline void expect_no_fault(const char* fault) {
  ++comparisons;
  if (fault == nullptr) return;
  ++failures;
  std::printf("FAIL %s: %s\n", current_case.c_str(), fault);
}

// Rows [row, row + count) of a contiguous matrix.
template <class T>
std::vector<T> take_rows(const std::vector<T>& m, int64_t row, int64_t count, int64_t width) {
  return {m.begin() + row * width, m.begin() + (row + count) * width};
}

// Copies the rows of a strided matrix to a contiguous one. spread_rows does the reverse, with zero
// padding.
template <class T>
std::vector<T> pack_rows(const std::vector<T>& m, int64_t rows, int64_t width, int64_t stride) {
  std::vector<T> packed(static_cast<size_t>(rows * width));
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(m.begin() + r * stride, width, packed.begin() + r * width);
  return packed;
}
template <class T>
std::vector<T> spread_rows(const std::vector<T>& m, int64_t rows, int64_t width, int64_t stride) {
  std::vector<T> spread(static_cast<size_t>(rows * stride));
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(m.begin() + r * width, width, spread.begin() + r * stride);
  return spread;
}

inline int finish_checks(const char* program) {
  std::printf("%s: %d comparisons, %d failures\n", program, comparisons, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace slimexx::kernels::testing

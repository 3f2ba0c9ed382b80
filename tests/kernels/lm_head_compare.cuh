// Shared by the parts of the LM head's check: counters, launches and comparisons.
#pragma once
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "slimexx/kernels/lm_head.h"
#include "tests/kernels/lm_head_reference.cuh"

namespace slimexx::kernels::testing {

constexpr int64_t kGuard = 1024;  // elements after an output that must keep their poison

inline int comparisons = 0;
inline int failures = 0;

inline std::string name_case(const Case& c, int64_t rows) {
  char text[160];
  std::snprintf(text, sizeof(text),
                "rows %ld of %ld vocabulary %ld k %ld temperature %g%s seed %lu", long(rows),
                long(c.rows), long(c.vocabulary), long(c.k), static_cast<double>(c.temperature),
                c.kind == Rows::kExtreme ? " extreme" : "", static_cast<unsigned long>(kSeed));
  return text;
}

// All NaNs count as equal.
inline bool same_bits(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof(a)) == 0;
}

// Checks that the first `count` floats are as expected, and the guard after them untouched.
inline void compare_rows(const std::string& name, const char* what, const FloatArray& got,
                         const FloatArray& expected, int64_t count) {
  ++comparisons;
  const std::vector<float> a = to_host(got), b = to_host(expected);
  int64_t differing = 0, first = -1;
  for (size_t i = 0; i < static_cast<size_t>(count + kGuard); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &a[i], sizeof(bits));
    const bool inside = i < static_cast<size_t>(count);
    // An element that still has the poison's bits was never written, even if a NaN is expected
    // there.
    const bool good = inside ? same_bits(a[i], b[i]) && bits != ~0u : bits == ~0u;
    if (good) continue;
    ++differing;
    if (first < 0) first = static_cast<int64_t>(i);
  }
  if (differing == 0) return;
  if (++failures > 40) return;
  const size_t i = static_cast<size_t>(first);
  std::printf("FAIL %s: %s: %ld differ, first row %ld: %.9g, expected %.9g%s\n", name.c_str(), what,
              long(differing), long(first), double(a[i]), first < count ? double(b[i]) : 0.0,
              first < count ? "" : " (outside)");
}

inline LmHeadGradient describe_gradient(const Expected& e, bool entropies, void* dlogits,
                                        int64_t stride) {
  LmHeadGradient gradient;
  gradient.targets = e.targets.data();
  gradient.temperature = e.c.temperature;
  gradient.lse = e.lse.data();
  gradient.entropies = entropies ? e.entropies.data() : nullptr;
  gradient.dlog_probs = e.dlog_probs.data();
  gradient.dentropies = entropies ? e.dentropies.data() : nullptr;
  gradient.dlogits = dlogits;
  gradient.dlogits_stride = stride;
  return gradient;
}

struct Outputs {
  explicit Outputs(int64_t rows)
      : log_probs(rows + kGuard), lse(rows + kGuard), entropies(rows + kGuard) {
    log_probs.set_bytes(0xff);
    lse.set_bytes(0xff);
    entropies.set_bytes(0xff);
  }
  FloatArray log_probs, lse, entropies;
};

// Runs the forward on the first rows of a case; `logits` null: logits are not kept.
inline void launch_forward(const Expected& e, int64_t rows, bool entropies, const Outputs& out,
                           void* workspace, float* logits) {
  const Case& c = e.c;
  LmHeadForwardArgs args;
  args.product = {e.hidden.data(), e.w.data(), rows, c.vocabulary, c.k};
  args.targets = e.targets.data();
  args.temperature = c.temperature;
  args.log_probs = out.log_probs.data();
  args.lse = out.lse.data();
  args.entropies = entropies ? out.entropies.data() : nullptr;
  args.workspace = workspace;
  args.logits = logits;
  require_queued(lm_head_forward(args, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
}

inline void compare_outputs(const std::string& name, const Outputs& out, const Expected& e,
                            int64_t rows, bool entropies) {
  compare_rows(name, "log_probs", out.log_probs, e.log_probs, rows);
  compare_rows(name, "lse", out.lse, e.lse, rows);
  compare_rows(name, "entropies", out.entropies, e.entropies, entropies ? rows : 0);
}

// A gradient in bf16 with row stride `stride`, and the expected contents of columns past the
// vocabulary.
struct GradientView {
  const __nv_bfloat16* d;
  int64_t stride, total;
  const __nv_bfloat16* outside = nullptr;  // null: all bits are one
};

struct Gradient {
  Gradient(const Expected& e, int64_t rows_, int64_t gap)
      : rows(rows_), stride((e.c.vocabulary + 7) / 8 * 8 + gap), d(rows * stride + kGuard) {
    d.set_bytes(0xff);
  }
  // Computes the reference gradient from the case's logits.
  void fill(const Expected& e, bool entropies) const {
    LogitRows z = e.logits();
    z.rows = rows;
    SLX_CUDA(log_probs_backward(d.data(), stride, z, e.lse.data(), e.targets.data(),
                                entropies ? e.entropies.data() : nullptr, e.dlog_probs.data(),
                                entropies ? e.dentropies.data() : nullptr, e.c.temperature, 0));
  }
  int64_t rows, stride;
  Bf16Array d;
};

// out[0] counts elements that differ from `expected` (row stride `expected_stride`), where all NaNs
// are equal; out[1] counts elements outside the columns that were overwritten.
__global__ void count_differences(const GradientView got, const __nv_bfloat16* expected,
                                  int64_t expected_stride, int64_t rows, int64_t columns,
                                  Difference* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < got.total; i += step) {
    const int64_t row = i / got.stride, column = i % got.stride;
    const bool inside = row < rows && column < columns;
    const uint16_t a = __bfloat16_as_ushort(got.d[i]);
    uint16_t b = got.outside == nullptr ? 0xffff : __bfloat16_as_ushort(got.outside[i]);
    if (inside) b = __bfloat16_as_ushort(expected[row * expected_stride + column]);
    const bool nans = (a & 0x7fff) > 0x7f80 && (b & 0x7fff) > 0x7f80 && a != 0xffff;
    if (a == b || (inside && nans)) continue;
    atomicAdd(&out[inside ? 0 : 1].count, 1ull);
    atomicMin(&out[inside ? 0 : 1].first, static_cast<unsigned long long>(i));
  }
}

inline void compare_gradients(const Expected& e, int64_t rows, bool entropies,
                              const GradientView& got, const Gradient& expected,
                              const char* what = "") {
  static DeviceArray<Difference> differences(2);
  Difference found[2] = {{0, ~0ull}, {0, ~0ull}};
  SLX_CUDA(cudaMemcpy(differences.data(), found, sizeof(found), cudaMemcpyHostToDevice));
  count_differences<<<1024, 256>>>(got, expected.d.data(), expected.stride, rows, e.c.vocabulary,
                                   differences.data());
  SLX_CUDA(cudaDeviceSynchronize());
  SLX_CUDA(cudaMemcpy(found, differences.data(), sizeof(found), cudaMemcpyDeviceToHost));
  ++comparisons;
  for (const Difference& difference : found) {
    if (difference.count == 0) continue;
    if (++failures > 40) continue;
    const auto i = static_cast<int64_t>(difference.first);
    const int64_t row = i / got.stride, column = i % got.stride;
    const bool inside = &difference == found;
    __nv_bfloat16 value;
    SLX_CUDA(cudaMemcpy(&value, got.d + i, sizeof(value), cudaMemcpyDeviceToHost));
    std::printf("FAIL %s%s: dlogits%s: %llu %s, first row %ld column %ld: %.9g",
                name_case(e.c, rows).c_str(), entropies ? " entropies" : "", what, difference.count,
                inside ? "differ" : "outside", long(row), long(column),
                double(__bfloat162float(value)));
    if (inside) {
      std::printf(", expected %.9g",
                  double(__bfloat162float(expected.d.get(row * expected.stride + column))));
    }
    std::printf("\n");
  }
}

}  // namespace slimexx::kernels::testing

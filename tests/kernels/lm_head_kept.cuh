// Checks the logits that the forward keeps, and the gradient from them, in its own array or over
// the logits.
#pragma once
#include <string>

#include "tests/kernels/lm_head_compare.cuh"

namespace slimexx::kernels::testing {

inline void launch_kept_backward(const Expected& e, int64_t rows, bool entropies,
                                 const float* logits, void* dlogits, int64_t stride) {
  const LmHeadKeptArgs args = {logits, rows, e.c.vocabulary,
                               describe_gradient(e, entropies, dlogits, stride)};
  require_queued(lm_head_kept_backward(args, nullptr));
}

// Counts the first `count` elements that differ, where all NaNs are equal, and the elements after
// them that were overwritten.
__global__ void count_different_floats(const float* got, const float* expected, int64_t count,
                                       int64_t total, Difference* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    const uint32_t a = __float_as_uint(got[i]);
    const bool poison = a == ~0u;
    if (i < count) {
      const float b = expected[i];
      if (!poison && (a == __float_as_uint(b) || (isnan(got[i]) && isnan(b)))) continue;
    } else if (poison) {
      continue;
    }
    atomicAdd(&out->count, 1ull);
    atomicMin(&out->first, static_cast<unsigned long long>(i));
  }
}

inline void compare_logits(const std::string& name, const FloatArray& got,
                           const FloatArray& expected, int64_t count, int64_t columns) {
  static DeviceArray<Difference> difference(1);
  Difference found = {0, ~0ull};
  SLX_CUDA(cudaMemcpy(difference.data(), &found, sizeof(found), cudaMemcpyHostToDevice));
  count_different_floats<<<1024, 256>>>(got.data(), expected.data(), count, got.count(),
                                        difference.data());
  SLX_CUDA(cudaDeviceSynchronize());
  found = difference.get(0);
  ++comparisons;
  if (found.count == 0 || ++failures > 40) return;
  const auto i = static_cast<int64_t>(found.first);
  std::printf("FAIL %s: %llu logits differ, first row %ld column %ld: %.9g, expected %.9g\n",
              name.c_str(), found.count, long(i / columns), long(i % columns), double(got.get(i)),
              i < count ? double(expected.get(i)) : 0.0);
}

// Kept logits must equal the plain product, and log-probs must equal those of a call that keeps no
// logits.
inline void check_kept_forward(const Expected& e, int64_t rows, bool entropies, FloatArray& kept) {
  const Case& c = e.c;
  const Outputs out(rows);
  DeviceArray<uint8_t> workspace(
      static_cast<int64_t>(lm_head_forward_workspace(rows, c.vocabulary, c.k, entropies)));
  kept.set_bytes(0xff);
  launch_forward(e, rows, entropies, out, workspace.data(), kept.data());
  const std::string name = name_case(c, rows) + (entropies ? " entropies kept" : " kept");
  compare_outputs(name, out, e, rows, entropies);
  const FloatArray raw(c.rows * c.vocabulary);
  e.multiply(raw.data(), c.vocabulary);
  compare_logits(name, kept, raw, rows * c.vocabulary, c.vocabulary);
}

inline void check_kept(const Expected& e, int64_t rows, bool entropies) {
  const Case& c = e.c;
  if (!lm_head_takes_tensor_cores(c.vocabulary, c.k)) return;
  FloatArray kept(rows * c.vocabulary + kGuard);
  const FloatArray before(kept.count());
  check_kept_forward(e, rows, entropies, kept);
  const int64_t gap = rows % 2 == 0 ? 0 : 16;
  const Gradient expected(e, rows, gap), beside(e, rows, gap);
  expected.fill(e, entropies);
  launch_kept_backward(e, rows, entropies, kept.data(), beside.d.data(), beside.stride);
  compare_gradients(e, rows, entropies, {beside.d.data(), beside.stride, beside.d.count()},
                    expected, " beside kept logits");
  SLX_CUDA(cudaMemcpy(before.data(), kept.data(), static_cast<size_t>(kept.count()) * 4,
                      cudaMemcpyDeviceToDevice));
  launch_kept_backward(e, rows, entropies, kept.data(), kept.data(), 2 * c.vocabulary);
  compare_gradients(e, rows, entropies,
                    {reinterpret_cast<const __nv_bfloat16*>(kept.data()), 2 * c.vocabulary,
                     2 * kept.count(), reinterpret_cast<const __nv_bfloat16*>(before.data())},
                    expected, " in place of kept logits");
}

// `p`: device memory of a few thousand floats.
inline void check_kept_refusals(float* p) {
  LmHeadKeptArgs good = {p, 1, 64, {}};
  good.gradient.targets = reinterpret_cast<const int32_t*>(p);
  good.gradient.lse = good.gradient.dlog_probs = p;
  good.gradient.dlogits = p + 1024;
  const auto refuse = [&good](const char* what, auto change) {
    LmHeadKeptArgs args = good;
    change(args);
    ++comparisons;
    if (lm_head_kept_backward(args, nullptr) != nullptr) return;
    ++failures;
    std::printf("FAIL: kept logits: %s was not refused\n", what);
  };
  refuse("no vocabulary", [](auto& a) { a.vocabulary = 0; });
  refuse("a vocabulary of 65", [](auto& a) { a.vocabulary = 65; });
  refuse("temperature 0", [](auto& a) { a.gradient.temperature = 0; });
  refuse("null logits", [](auto& a) { a.logits = nullptr; });
  refuse("null lse", [](auto& a) { a.gradient.lse = nullptr; });
  refuse("entropies alone", [p](auto& a) { a.gradient.entropies = p; });
  refuse("misaligned logits", [p](auto& a) { a.logits = p + 1; });
  refuse("stride of 68", [](auto& a) { a.gradient.dlogits_stride = 68; });
  refuse("stride below the vocabulary", [](auto& a) { a.gradient.dlogits_stride = 56; });
  refuse("their own place, densely", [p](auto& a) { a.gradient.dlogits = p; });
}

}  // namespace slimexx::kernels::testing

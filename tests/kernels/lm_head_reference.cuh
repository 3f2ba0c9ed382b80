// Cases of the LM head's check, and their reference results with logits in memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/vocabulary.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/gemm_reference.cuh"
#include "tests/kernels/wide_values.cuh"

namespace slimexx::kernels::testing {

using Bf16Array = DeviceArray<__nv_bfloat16>;
using FloatArray = DeviceArray<float>;
constexpr uint64_t kSeed = 77;

inline void require_queued(const char* fault) {
  if (fault == nullptr) return;
  std::fprintf(stderr, "launch: %s\n", fault);
  std::exit(2);
}

template <class T>
std::vector<T> to_host(const DeviceArray<T>& from) {
  std::vector<T> out(static_cast<size_t>(from.count()));
  SLX_CUDA(cudaMemcpy(out.data(), from.data(), out.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

template <class T>
void to_device(const DeviceArray<T>& to, const std::vector<T>& from) {
  SLX_CUDA(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice));
}

// kExtreme: some rows are not normally distributed.
enum class Rows { kNormal, kExtreme };

// Logits of row r of kExtreme, by r % 12: 1 tiny, 2 zero, 3 large (some overflow), 4 -inf in every
// third column, 5 NaN, 6 all -inf or +inf, 7 tiny except every third column, which is far below, 8
// tiny except every third column, which is above. Column 0 of w makes 4, 7 and 8 possible.
__global__ void plant_extremes(__nv_bfloat16* hidden, __nv_bfloat16* w, int64_t rows,
                               int64_t vocabulary, int64_t k) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < vocabulary; i += stride) {
    w[i * k] = __float2bfloat16_rn(i % 3 == 0 ? 8.0f : 0.0f);
  }
  for (int64_t i = first; i < rows * k; i += stride) {
    const int64_t kind = i / k % 12;
    const float x = __bfloat162float(hidden[i]);
    float y = i % k == 0 ? 0.0f : x;
    if (kind == 1) y *= 0x1p-120f;
    if (kind == 2) y = 0.0f;
    if (kind == 3) y *= 0x1p127f;
    if (kind == 4 && i % k == 0) y = -3e38f;
    if (kind == 5 && i % k == 1) y = __int_as_float(0x7fffffff);
    if (kind == 6 && i % k == 1) y = __int_as_float(0x7f800000);
    if (kind == 7 || kind == 8) y = i % k == 0 ? (kind == 7 ? -30.0f : 0.5f) : y * 0x1p-115f;
    hidden[i] = __float2bfloat16_rn(y);
  }
}

// Targets at every position of a tile, in the first and last column, and some outside.
inline std::vector<int32_t> choose_targets(int64_t rows, int64_t vocabulary) {
  const int64_t tiles = (vocabulary + 255) / 256;
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t target = (r * 7919 % tiles * 256 + r % 256) % vocabulary;
    if (r % 41 == 0) target = vocabulary - 1;
    if (r % 97 == 13) target = 0;
    if (r % 101 == 17) target = -2;  // -1 means a target in another shard
    if (r % 103 == 19) target = vocabulary;
    if (r % 107 == 23) target = tiles * 256 - 1;
    targets.push_back(static_cast<int32_t>(target));
  }
  return targets;
}

inline std::vector<float> choose_gradients(int64_t rows, float scale) {
  std::vector<float> out;
  for (int64_t r = 0; r < rows; ++r) {
    out.push_back(r % 7 == 6 ? 0.0f : scale * std::sin(static_cast<float>(r) + scale));
  }
  return out;
}

struct Case {
  int64_t rows, vocabulary, k;
  float temperature;
  Rows kind;
  Values values = Values::kNormal;
};

// Operands of a case, and the reference results with logits in memory.
struct Expected {
  explicit Expected(const Case& c_)
      : c(c_),
        stride((c.vocabulary + 3) / 4 * 4),
        hidden(c.rows * c.k),
        w(c.vocabulary * c.k),
        targets(c.rows),
        dlog_probs(c.rows),
        dentropies(c.rows),
        z(c.rows * stride),
        log_probs(c.rows),
        lse(c.rows),
        entropies(c.rows) {
    fill_values<<<1024, 256>>>(hidden.data(), hidden.count(), c.k, c.values, false, kSeed, 1.0f);
    fill_values<<<1024, 256>>>(w.data(), w.count(), c.k, c.values, true, kSeed + 1,
                               2.0f / std::sqrt(float(c.k)));
    if (c.kind == Rows::kExtreme) {
      plant_extremes<<<256, 256>>>(hidden.data(), w.data(), c.rows, c.vocabulary, c.k);
    }
    to_device(targets, choose_targets(c.rows, c.vocabulary));
    to_device(dlog_probs, choose_gradients(c.rows, 1.5f));
    to_device(dentropies, choose_gradients(c.rows, 0.25f));
    compute();
  }
  LogitRows logits() const { return {z.data(), stride, c.rows, c.vocabulary}; }

  // The plain product of all rows, with row stride `out_stride`.
  void multiply(float* out, int64_t out_stride) const {
    GemmArgs product;
    product.x = hidden.data();
    product.w = w.data();
    product.y = out;
    product.m = c.rows;
    product.n = c.vocabulary;
    product.k = c.k;
    product.output = GemmOutput::kF32;
    product.y_stride = out_stride;
    require_queued(launch_gemm(product, nullptr));
  }

  void compute() {
    multiply(z.data(), stride);
    DeviceArray<uint8_t> workspace(
        static_cast<int64_t>(std::max(normalize_logits_workspace(c.rows, c.vocabulary),
                                      gather_log_probs_workspace(c.rows, c.vocabulary))));
    SLX_CUDA(normalize_logits(logits(), lse.data(), nullptr, c.temperature, workspace.data(), 0));
    SLX_CUDA(gather_log_probs(log_probs.data(), entropies.data(), logits(), lse.data(),
                              targets.data(), workspace.data(), 0));
    SLX_CUDA(cudaDeviceSynchronize());
  }

  Case c;
  int64_t stride;
  Bf16Array hidden, w;
  DeviceArray<int32_t> targets;
  FloatArray dlog_probs, dentropies, z, log_probs, lse, entropies;
};

}  // namespace slimexx::kernels::testing

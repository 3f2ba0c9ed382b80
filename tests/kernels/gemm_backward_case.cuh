// A case of the gradients of y = x w^T, shared by the check and the benchmark: sizes, operands, and
// the earlier contents of the results.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "slimexx/kernels/gemm_backward.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/normal_values.cuh"

namespace slimexx::kernels::testing {

inline constexpr uint64_t kBackwardSeed = 31;
// Elements after the result that must not change.
inline constexpr int64_t kBackwardGuard = 4096;

// Sizes of y = x w^T, and the row gaps and misalignment of its matrices.
struct BackwardShape {
  int64_t m, n, k;
  int64_t gap = 0;     // elements between rows of dy, x and dx
  int64_t offset = 0;  // elements before each matrix
};

// Which gradient: dx (bf16) or dw (f32), accumulated or overwritten.
struct BackwardKind {
  bool weight;
  bool accumulate;
  const char* name() const {
    if (weight) return accumulate ? "dw accumulated" : "dw";
    return accumulate ? "dx accumulated" : "dx";
  }
};

static __global__ void fill_normal_f32(float* out, int64_t count, uint64_t seed, float scale) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const float u = (static_cast<float>(mix_bits(seed * 77 + 2 * i) >> 8) + 1) * 0x1p-24f;
    const float v = static_cast<float>(mix_bits(seed * 77 + 2 * i + 1)) * 0x1p-32f;
    out[i] = scale * sqrtf(-2 * logf(u)) * cospif(2 * v);
  }
}

struct BackwardOperands {
  explicit BackwardOperands(const BackwardShape& s)
      : shape(s),
        dy(s.offset + s.m * (s.n + s.gap)),
        x(s.offset + s.m * (s.k + s.gap)),
        w(s.offset + s.n * s.k),
        start_dx(s.offset + s.m * (s.k + s.gap) + kBackwardGuard),
        start_dw(s.n * s.k + kBackwardGuard),
        workspace(kGemmBackwardWorkspaceBytes) {
    fill_normal<<<1024, 256>>>(dy.data(), dy.count(), kBackwardSeed, 1.0f);
    fill_normal<<<1024, 256>>>(x.data(), x.count(), kBackwardSeed + 1, 1.0f);
    fill_normal<<<1024, 256>>>(w.data(), w.count(), kBackwardSeed + 2, 1.0f);
    fill_normal<<<1024, 256>>>(start_dx.data(), start_dx.count(), kBackwardSeed + 3, 8.0f);
    fill_normal_f32<<<1024, 256>>>(start_dw.data(), start_dw.count(), kBackwardSeed + 4, 8.0f);
    SLX_CUDA(cudaDeviceSynchronize());
  }
  BackwardShape shape;
  DeviceArray<__nv_bfloat16> dy, x, w, start_dx;
  DeviceArray<float> start_dw;
  DeviceArray<uint8_t> workspace;
};

}  // namespace slimexx::kernels::testing

// Gradients of y[m, n] = x[m, k] w[n, k]^T, by cuBLASLt:
//   dx[m, k] (+)= dy[m, n] w[n, k]        bf16
//   dw[n, k] (+)= dy[m, n]^T x[m, k]      f32
//
// Products accumulate in fp32. dx is rounded once; with `accumulate` cuBLASLt may round the product
// to bf16 before it adds. The algorithm comes from cuBLASLt's heuristic, depends only on sizes,
// strides, alignment and workspace size, never on timing, and uses no atomics. So the same call
// gives the same bits every time. A plain kernel computes products for which cuBLASLt has no
// algorithm. Several threads may call these functions; each needs its own workspace.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels {

constexpr size_t kGemmBackwardWorkspaceBytes = size_t{32} << 20;

// Device memory, 256-byte aligned. Only kernels of the same stream may share it. Fewer bytes than
// kGemmBackwardWorkspaceBytes, even none, are allowed and may be slower.
struct GemmWorkspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// Matrices are row-major; strides count elements from row to row; 0: no gaps.
struct GemmInputGradArgs {
  const void* dy = nullptr;  // [m, n] bf16
  const void* w = nullptr;   // [n, k] bf16
  void* dx = nullptr;        // [m, k] bf16; must not overlap dy or w
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  int64_t dy_stride = 0;
  int64_t dx_stride = 0;
  bool accumulate = false;  // add to what dx holds
};

struct GemmWeightGradArgs {
  const void* dy = nullptr;  // [m, n] bf16
  const void* x = nullptr;   // [m, k] bf16
  void* dw = nullptr;        // [n, k] f32; must not overlap dy or x
  int64_t m = 0;             // 0: adds nothing, or stores zeros
  int64_t n = 0;
  int64_t k = 0;
  int64_t dy_stride = 0;
  int64_t x_stride = 0;
  bool accumulate = true;  // add to what dw holds
};

// Queue the product on `stream` of the current device. Return null, or the fault as a static text,
// which includes the status if cuBLASLt failed.
[[nodiscard]] const char* launch_gemm_input_grad(const GemmInputGradArgs& args,
                                                 const GemmWorkspace& workspace,
                                                 cudaStream_t stream);
[[nodiscard]] const char* launch_gemm_weight_grad(const GemmWeightGradArgs& args,
                                                  const GemmWorkspace& workspace,
                                                  cudaStream_t stream);

}  // namespace slimexx::kernels

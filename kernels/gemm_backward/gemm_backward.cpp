// Checks the arguments of a gradient and expresses it as one product of row-major matrices.
#include "slimexx/kernels/gemm_backward.h"

#include "kernels/common/sizes.h"
#include "kernels/gemm_backward/products.h"

namespace slimexx::kernels {
namespace {

const char* find_fault(int64_t m, int64_t n, int64_t k, const GemmWorkspace& workspace) {
  constexpr int64_t kMaxSize = INT32_MAX / 2;
  if (m < 0 || n <= 0 || k <= 0) {
    return "gemm_backward: m must be at least 0, n and k at least 1";
  }
  if (m > kMaxSize || n > kMaxSize || k > kMaxSize) {
    return "gemm_backward: m, n and k must be < 2^30";
  }
  if (workspace.bytes > 0 && (workspace.data == nullptr || !is_aligned(workspace.data, 256))) {
    return "gemm_backward: the workspace must be 256-byte aligned device memory";
  }
  return nullptr;
}

const char* find_fault(const GradProduct& p) {
  if (p.a.data == nullptr || p.b.data == nullptr || p.d == nullptr) {
    return "gemm_backward: an operand is null";
  }
  if (!is_aligned(p.a.data, 2) || !is_aligned(p.b.data, 2) ||
      !is_aligned(p.d, p.d_is_f32 ? 4 : 2)) {
    return "gemm_backward: an operand is not aligned to its element size";
  }
  if (p.a.stride < p.a.columns || p.b.stride < p.b.columns || p.d_stride < p.columns()) {
    return "gemm_backward: a stride is shorter than a row";
  }
  return nullptr;
}

int64_t stride_or(int64_t stride, int64_t columns) { return stride == 0 ? columns : stride; }

const char* multiply(const GradProduct& product, const GemmWorkspace& workspace,
                     cudaStream_t stream) {
  if (const char* fault = find_fault(product)) return fault;
  const GradOutcome outcome = multiply_by_cublas(product, workspace, stream);
  return outcome.unserved ? multiply_plainly(product, stream) : outcome.fault;
}

}  // namespace

const char* launch_gemm_input_grad(const GemmInputGradArgs& g, const GemmWorkspace& workspace,
                                   cudaStream_t stream) {
  if (const char* fault = find_fault(g.m, g.n, g.k, workspace)) return fault;
  if (g.m == 0) return nullptr;
  GradProduct p{};
  p.a = {g.dy, g.m, g.n, stride_or(g.dy_stride, g.n)};
  p.b = {g.w, g.n, g.k, g.k};
  p.transpose_a = false;
  p.d = g.dx;
  p.d_stride = stride_or(g.dx_stride, g.k);
  p.d_is_f32 = false;
  p.accumulate = g.accumulate;
  return multiply(p, workspace, stream);
}

const char* launch_gemm_weight_grad(const GemmWeightGradArgs& g, const GemmWorkspace& workspace,
                                    cudaStream_t stream) {
  if (const char* fault = find_fault(g.m, g.n, g.k, workspace)) return fault;
  if (g.m == 0) {
    if (g.accumulate) return nullptr;
    if (g.dw == nullptr) return "gemm_backward: an operand is null";
    const auto bytes = static_cast<size_t>(g.n) * static_cast<size_t>(g.k) * sizeof(float);
    const cudaError_t error = cudaMemsetAsync(g.dw, 0, bytes, stream);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }
  GradProduct p{};
  p.a = {g.dy, g.m, g.n, stride_or(g.dy_stride, g.n)};
  p.b = {g.x, g.m, g.k, stride_or(g.x_stride, g.k)};
  p.transpose_a = true;
  p.d = g.dw;
  p.d_stride = g.k;
  p.d_is_f32 = true;
  p.accumulate = g.accumulate;
  return multiply(p, workspace, stream);
}

}  // namespace slimexx::kernels

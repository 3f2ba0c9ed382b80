// Checks the arguments of a product and calls the variant that computes the product.
#include "slimexx/kernels/gemm.h"

#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/gemm/variants.h"

namespace slimexx::kernels {
namespace {

bool suits_tensor_cores(const GemmArgs& a) {
  return a.n % 8 == 0 && a.k % 8 == 0 && a.w_stride % 8 == 0 && is_aligned(a.w, 16);
}

const char* find_size_fault(const GemmArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 2;
  if (a.m < 0 || a.n <= 0 || a.k <= 0) return "gemm: m must be at least 0, n and k at least 1";
  if (a.m > kMaxSize || a.n > kMaxSize || a.k > kMaxSize) return "gemm: m, n and k must be < 2^30";
  if (a.y_stride != 0 && a.y_stride < a.n) return "gemm: y_stride must be 0 or at least n";
  if ((a.x_stride != 0 && a.x_stride < a.k) || (a.w_stride != 0 && a.w_stride < a.k)) {
    return "gemm: x_stride and w_stride must be 0 or at least k";
  }
  return nullptr;
}

const char* find_fault(const GemmArgs& a) {
  if (const char* fault = find_size_fault(a)) return fault;
  if (a.k % 8 != 0)
    return "gemm: k must be a multiple of 8, so that rows of x and w are 16-byte aligned";
  if (a.n % 8 != 0) return "gemm: n must be a multiple of 8 (rows of y of 16 bytes)";
  if (a.y_stride % (a.output == GemmOutput::kF32 ? 4 : 8) != 0) {
    return "gemm: y_stride must be a multiple of 8 (bf16) or 4 (f32)";
  }
  if (a.x_stride % 8 != 0 || a.w_stride % 8 != 0) {
    return "gemm: x_stride and w_stride must be multiples of 8";
  }
  if (a.m == 0) return nullptr;
  if (a.x == nullptr || a.w == nullptr || a.y == nullptr) return "gemm: x, w or y is null";
  if (!is_aligned(a.x, 16) || !is_aligned(a.w, 16) || !is_aligned(a.y, 16)) {
    return "gemm: x, w and y must be 16-byte aligned";
  }
  if (!is_aligned(a.bias, 4)) return "gemm: bias must be 4-byte aligned";
  return nullptr;
}

const char* find_fallback_fault(const GemmArgs& a) {
  if (const char* fault = find_size_fault(a)) return fault;
  if (a.m == 0) return nullptr;
  if (a.x == nullptr || a.w == nullptr || a.y == nullptr) return "gemm: x, w or y is null";
  if (!is_aligned(a.x, 2) || !is_aligned(a.w, 2) || !is_aligned(a.bias, 2) ||
      !is_aligned(a.y, a.output == GemmOutput::kF32 ? 4 : 2)) {
    return "gemm: an operand is not aligned to its element size";
  }
  return nullptr;
}

using Launcher = decltype(&launch_plain_128);

// Finds the function by operand order and number of warpgroups.
Launcher find_launcher(const GemmConfig& config) {
  constexpr Launcher kPlain[3] = {launch_plain_64, launch_plain_128, launch_plain_192};
  constexpr Launcher kSwapped[3] = {launch_swapped_64, launch_swapped_128, launch_swapped_192};
  if (config.ping_pong) return launch_plain_128_ping_pong;
  const int groups = config.rows <= 64 ? 0 : config.rows <= 128 ? 1 : 2;
  return (config.swap_operands ? kSwapped : kPlain)[groups];
}

}  // namespace

const char* launch_gemm(const GemmArgs& args, cudaStream_t stream) {
  if (suits_tensor_cores(args)) {
    return launch_gemm(args, choose_gemm_config(args.m, args.n, args.k), stream);
  }
  if (const char* fault = find_fallback_fault(args)) return fault;
  return args.m == 0 ? nullptr : launch_fallback(args, stream);
}

const char* launch_gemm(const GemmArgs& args, const GemmConfig& config, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.m == 0) return nullptr;
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return find_launcher(config)(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels

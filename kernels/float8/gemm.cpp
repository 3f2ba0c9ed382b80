// Checks the arguments of an FP8 product and calls the variant that computes the product.
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/float8/variants.h"

namespace slimexx::kernels {
namespace {

const char* find_size_fault(const Fp8GemmArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 2;
  if (a.m < 0 || a.n <= 0 || a.k <= 0) return "fp8_gemm: m must be at least 0, n and k at least 1";
  if (a.m > kMaxSize || a.n > kMaxSize || a.k > kMaxSize) {
    return "fp8_gemm: m, n and k must be < 2^30";
  }
  if (a.n % kFp8UnitRows != 0) return "fp8_gemm: n must be a multiple of 64";
  if (a.k % kFp8GroupColumns != 0) return "fp8_gemm: k must be a multiple of 128";
  return nullptr;
}

const char* find_stride_fault(const Fp8GemmArgs& a, int64_t features) {
  if (a.w_stride % 16 != 0 || (a.w_stride != 0 && a.w_stride < a.k)) {
    return "fp8_gemm: w_stride must be 0, or at least k and a multiple of 16";
  }
  if (a.x_scale_stride % 4 != 0 || (a.x_scale_stride != 0 && a.x_scale_stride < a.m)) {
    return "fp8_gemm: x_scale_stride must be 0, or at least m and a multiple of 4";
  }
  if (a.w_scale_stride != 0 && a.w_scale_stride < a.k / kFp8GroupColumns) {
    return "fp8_gemm: w_scale_stride must be 0 or at least k / 128";
  }
  if (a.y_stride != 0 && a.y_stride < features) {
    return "fp8_gemm: y_stride must be 0 or at least the columns of y";
  }
  if (a.y_stride % (a.output == GemmOutput::kF32 ? 4 : 8) != 0) {
    return "fp8_gemm: y_stride must be a multiple of 8 (bf16) or 4 (f32)";
  }
  return nullptr;
}

const char* find_input_fault(const Fp8GemmArgs& a) {
  if (!a.x_is_bf16) {
    return is_given(a.x) && is_given(a.x_scales)
               ? nullptr
               : "fp8_gemm: x and its scales must be 16-byte aligned";
  }
  if (!fp8_gemm_quantises(a.m, a.k)) return "fp8_gemm: x in bf16 is too large";
  return is_given(a.x, a.x_stride) && (a.x_stride == 0 || a.x_stride >= a.k)
             ? nullptr
             : "fp8_gemm: rows of x in bf16 must be 16-byte aligned, x_stride 0 or at least k";
}

// `features`: columns of y.
const char* find_fault(const Fp8GemmArgs& a, int64_t features) {
  if (const char* fault = find_size_fault(a)) return fault;
  if (const char* fault = find_stride_fault(a, features)) return fault;
  if (a.m == 0) return nullptr;
  if (const char* fault = find_input_fault(a)) return fault;
  if (!is_given(a.w) || !is_given(a.y)) return "fp8_gemm: w and y must be 16-byte aligned";
  if (a.w_scales == nullptr) return "fp8_gemm: the scales of w are null";
  return is_aligned(a.bias, 4) ? nullptr : "fp8_gemm: bias must be 4-byte aligned";
}

}  // namespace

const char* launch_fp8_gemm(const Fp8GemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_size_fault(args)) return fault;
  return launch_fp8_gemm(args, choose_fp8_gemm_config(args.m, args.n, args.k, args.x_is_bf16),
                         stream);
}

const char* launch_fp8_gemm(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                            cudaStream_t stream) {
  if (const char* fault = find_fault(args, args.n)) return fault;
  if (args.m == 0) return nullptr;
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  if (args.x_is_bf16) return launch_float8_quantising(args, config, sm_count, stream);
  constexpr decltype(&launch_float8_plain) kSwapped[3] = {
      launch_float8_swapped_64, launch_float8_swapped_128, launch_float8_swapped_192};
  const int groups = config.rows <= 64 ? 0 : config.rows <= 128 ? 1 : 2;
  return (config.swap_operands ? kSwapped[groups] : launch_float8_plain)(args, config, sm_count,
                                                                         stream);
}

const char* launch_fp8_gemm_swiglu(const Fp8GemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_size_fault(args)) return fault;
  return launch_fp8_gemm_swiglu(
      args, choose_fp8_gemm_swiglu_config(args.m, args.n, args.k, args.x_is_bf16), stream);
}

const char* launch_fp8_gemm_swiglu(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                   cudaStream_t stream) {
  if (const char* fault = find_fault(args, args.n / 2)) return fault;
  if (args.n % (2 * kFp8UnitRows) != 0) return "fp8_gemm_swiglu: n must be a multiple of 128";
  if (args.output != GemmOutput::kBf16) return "fp8_gemm_swiglu: the output must be bf16";
  if (args.m == 0) return nullptr;
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const auto launch = args.x_is_bf16         ? launch_float8_swiglu_quantising
                      : config.swap_operands ? launch_float8_swiglu_swapped
                                             : launch_float8_swiglu_plain;
  return launch(args, config, sm_count, stream);
}

}  // namespace slimexx::kernels

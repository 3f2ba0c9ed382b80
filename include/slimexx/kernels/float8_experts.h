// FP8 (e4m3) products of experts on Hopper: each expert's rows with its own weights, in one launch.
//
// A row of y has the bits of launch_fp8_gemm with its expert's weights, for every number of rows
// and every configuration. Operands are those of float8.h, rows and offsets those of experts.h.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/experts.h"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

struct Fp8GroupedGemmArgs {
  const void* x = nullptr;          // [R, k] e4m3, 16-byte aligned
  const float* x_scales = nullptr;  // [k / 128, x_scale_stride], 16-byte aligned
  const void* w = nullptr;          // [experts, n, k] e4m3, 16-byte aligned
  const float* w_scales = nullptr;  // [experts, n / 64, k / 128]
  void* y = nullptr;                // [R, n] bf16 or f32, 16-byte aligned; rows from
                                    // offsets[experts] on are not written
  GroupedRows rows = {};
  int64_t n = 0;               // a multiple of 64
  int64_t k = 0;               // a multiple of 128
  int64_t x_scale_stride = 0;  // a multiple of 4; 0: fp8_scale_stride of the rows of x
  GemmOutput output = GemmOutput::kBf16;
  bool x_is_bf16 = false;        // see Fp8GemmArgs
  int64_t x_stride = 0;          // read only with x_is_bf16
  bool one_x_row = false;        // see GroupedGemmArgs
  bool follows_product = false;  // see GroupedGemmArgs
};

// The configurations that are compiled in, for tests and benchmarks. `band` has no effect. A
// swapped configuration may have up to 56 rows fewer than listed. Tiles in plain order do not
// compute products with one_x_row.
int count_fp8_grouped_gemm_configs();
Fp8GemmConfig get_fp8_grouped_gemm_config(int index);

// The configuration expected to be fastest. Depends only on the sizes and on x_is_bf16.
Fp8GemmConfig choose_fp8_grouped_gemm_config(const Fp8GroupedGemmArgs& args);

// Both return null, or the error as a static text.
[[nodiscard]] const char* launch_fp8_grouped_gemm(const Fp8GroupedGemmArgs& args,
                                                  cudaStream_t stream);
[[nodiscard]] const char* launch_fp8_grouped_gemm(const Fp8GroupedGemmArgs& args,
                                                  const Fp8GemmConfig& config, cudaStream_t stream);

// y is h [R, n / 2] = silu(gate) * up, where the product is [gate, up]. The bits are those of
// launch_fp8_grouped_gemm into bf16 followed by swiglu_forward. n must be a multiple of 128.
bool suits_fp8_grouped_swiglu(const Fp8GemmConfig& config);  // whether `config` is compiled in
Fp8GemmConfig choose_fp8_grouped_swiglu_config(const Fp8GroupedGemmArgs& args);
[[nodiscard]] const char* launch_fp8_grouped_gemm_swiglu(const Fp8GroupedGemmArgs& args,
                                                         cudaStream_t stream);
[[nodiscard]] const char* launch_fp8_grouped_gemm_swiglu(const Fp8GroupedGemmArgs& args,
                                                         const Fp8GemmConfig& config,
                                                         cudaStream_t stream);

}  // namespace slimexx::kernels

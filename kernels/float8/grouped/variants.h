// The compiled variants of the grouped FP8 product: each function launches the variant that
// `config` describes.
#pragma once
#include "slimexx/kernels/float8_experts.h"

namespace slimexx::kernels {

const char* launch_grouped_float8_plain(const Fp8GroupedGemmArgs& args, const Fp8GemmConfig& config,
                                        int sm_count, cudaStream_t stream);
const char* launch_grouped_float8_swapped(const Fp8GroupedGemmArgs& args,
                                          const Fp8GemmConfig& config, int sm_count,
                                          cudaStream_t stream);
const char* launch_grouped_float8_quantising(const Fp8GroupedGemmArgs& args,
                                             const Fp8GemmConfig& config, int sm_count,
                                             cudaStream_t stream);
// With SwiGLU as epilogue.
const char* launch_grouped_float8_swiglu(const Fp8GroupedGemmArgs& args,
                                         const Fp8GemmConfig& config, int sm_count,
                                         cudaStream_t stream);
const char* launch_grouped_float8_swiglu_quantising(const Fp8GroupedGemmArgs& args,
                                                    const Fp8GemmConfig& config, int sm_count,
                                                    cudaStream_t stream);

}  // namespace slimexx::kernels

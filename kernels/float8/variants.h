// The compiled variants of the FP8 product: each function launches the variant that `config`
// describes.
#pragma once
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels {

const char* launch_float8_plain(const Fp8GemmArgs& args, const Fp8GemmConfig& config, int sm_count,
                                cudaStream_t stream);
const char* launch_float8_swapped_64(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                     int sm_count, cudaStream_t stream);
const char* launch_float8_swapped_128(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                      int sm_count, cudaStream_t stream);
const char* launch_float8_swapped_192(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                      int sm_count, cudaStream_t stream);
const char* launch_float8_quantising(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                     int sm_count, cudaStream_t stream);
// With SwiGLU as epilogue.
const char* launch_float8_swiglu_plain(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                       int sm_count, cudaStream_t stream);
const char* launch_float8_swiglu_swapped(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                         int sm_count, cudaStream_t stream);
const char* launch_float8_swiglu_quantising(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                            int sm_count, cudaStream_t stream);

}  // namespace slimexx::kernels

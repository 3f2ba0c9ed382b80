// Where the compiled variants live. Each function launches the one that `config` names.
#pragma once
#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

const char* launch_narrow_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                     cudaStream_t stream);
const char* launch_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                              cudaStream_t stream);
const char* launch_wide_plain_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                   cudaStream_t stream);
const char* launch_alternating_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                    cudaStream_t stream);
const char* launch_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                cudaStream_t stream);
const char* launch_wide_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                     cudaStream_t stream);
const char* launch_wider_swapped_gemm(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                      cudaStream_t stream);

// Any n, k and address; ordinary kernel starts, whatever args.overlap_previous says.
const char* launch_fallback_gemm(const GemmArgs& args, cudaStream_t stream);

}  // namespace slimexx::kernels

// The compiled variants: one source file per operand order and number of tile rows. Each function
// launches the variant that `config` describes.
#pragma once
#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

const char* launch_plain_64(const GemmArgs& args, const GemmConfig& config, int sm_count,
                            cudaStream_t stream);
const char* launch_plain_128(const GemmArgs& args, const GemmConfig& config, int sm_count,
                             cudaStream_t stream);
const char* launch_plain_192(const GemmArgs& args, const GemmConfig& config, int sm_count,
                             cudaStream_t stream);
const char* launch_plain_128_ping_pong(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                       cudaStream_t stream);
const char* launch_swapped_64(const GemmArgs& args, const GemmConfig& config, int sm_count,
                              cudaStream_t stream);
const char* launch_swapped_128(const GemmArgs& args, const GemmConfig& config, int sm_count,
                               cudaStream_t stream);
const char* launch_swapped_192(const GemmArgs& args, const GemmConfig& config, int sm_count,
                               cudaStream_t stream);

// Supports any n, k and address. Ignores args.overlap_previous: launches are ordinary.
const char* launch_fallback(const GemmArgs& args, cudaStream_t stream);

}  // namespace slimexx::kernels

// The compiled variants, by order of operands and rows of the tile; a source file each. Each
// function launches the one that `config` names.
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

// Any n, k and address; ordinary kernel starts, whatever args.overlap_previous says.
const char* launch_fallback(const GemmArgs& args, cudaStream_t stream);

}  // namespace slimexx::kernels

// The compiled tiles of grouped products, with one source file for each.
#pragma once
#include "slimexx/kernels/experts.h"
#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

const char* launch_grouped_plain(const GroupedGemmArgs& args, const GemmConfig& config,
                                 int sm_count, cudaStream_t stream);
const char* launch_grouped_swapped(const GroupedGemmArgs& args, const GemmConfig& config,
                                   int sm_count, cudaStream_t stream);
const char* launch_grouped_swiglu(const GroupedGemmArgs& args, const GemmConfig& config,
                                  int sm_count, cudaStream_t stream);
const char* launch_grouped_turned(const GroupedGemmArgs& args, const GemmConfig& config,
                                  int sm_count, cudaStream_t stream);

}  // namespace slimexx::kernels

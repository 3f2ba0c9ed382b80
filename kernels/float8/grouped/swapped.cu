// Grouped FP8 products of few rows per expert: the weights are the rows of the tensor-core product.
#include "kernels/float8/grouped/launch.cuh"

namespace slimexx::kernels {

const char* launch_grouped_float8_swapped(const Fp8GroupedGemmArgs& args,
                                          const Fp8GemmConfig& config, int sm_count,
                                          cudaStream_t stream) {
  return launch_grouped_float8_matching<Float8SwappedTile<64, 8>, Float8SwappedTile<64, 16>,
                                        Float8SwappedTile<64, 32>, Float8SwappedTile<64, 64>,
                                        Float8SwappedTile<128, 8>, Float8SwappedTile<128, 16>,
                                        Float8SwappedTile<128, 32>, Float8SwappedTile<128, 64>>(
      args, config, sm_count, stream);
}

}  // namespace slimexx::kernels

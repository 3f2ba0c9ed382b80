// Launches the product of forward and backward, for any number of rows. Its tiles have 256 columns,
// like the tiles of the row sums.
#pragma once
#include "kernels/gemm/launch.cuh"
#include "slimexx/kernels/lm_head.h"

namespace slimexx::kernels::lm_head {

inline GemmArgs describe_product(const LmHeadProduct& p) {
  GemmArgs product;
  product.x = p.hidden;
  product.w = p.w;
  product.m = p.rows;
  product.n = p.vocabulary;
  product.k = p.k;
  product.output = GemmOutput::kF32;  // y stays null: the epilogue stores its own results
  return product;
}

template <class Tile, class Epilogue>
const char* launch_tiles(const GemmArgs& product, int sm_count, cudaStream_t stream,
                         const Epilogue& epilogue) {
  GemmConfig config;
  config.rows = Tile::kRows;
  config.columns = Tile::kColumns;
  config.cluster = Tile::kCluster;
  config.band = 16;
  // The warpgroups are as far apart as the stages allow, so that one sums while the other
  // multiplies.
  config.lead = Tile::count_stages(Tile::kRows, 1);
  return launch_variant<Tile>(product, config, sm_count, stream, epilogue);
}

// Up to 128 rows fill one tile, so the second tile of a cluster would be empty.
template <class Epilogue>
const char* launch_product(const GemmArgs& product, int sm_count, cudaStream_t stream,
                           const Epilogue& epilogue) {
  return product.m > 128 ? launch_tiles<PlainTile<128, 256, 2>>(product, sm_count, stream, epilogue)
                         : launch_tiles<PlainTile<128, 256>>(product, sm_count, stream, epilogue);
}

}  // namespace slimexx::kernels::lm_head

// The product under both directions: rows of hidden states by tiles of 256 columns, the columns of
// a tile of the row sums, whatever the number of rows.
#pragma once
#include "kernels/gemm/launch.cuh"

namespace slimexx::kernels::lm_head {

template <class Args>
GemmArgs describe_product(const Args& a) {
  GemmArgs product;
  product.x = a.hidden;
  product.w = a.w;
  product.m = a.rows;
  product.n = a.vocabulary;
  product.k = a.k;
  product.output = GemmOutput::kF32;  // and y null: the epilogue stores what it wants
  return product;
}

template <class Epilogue>
const char* launch_product(const GemmArgs& product, int sm_count, cudaStream_t stream,
                           const Epilogue& epilogue) {
  GemmConfig config;
  config.rows = 128;
  config.columns = 256;
  config.band = 16;
  config.lead = 3;  // one warpgroup sums a tile while the other multiplies
  if (product.m > 128) {
    config.cluster = 2;
    return launch_variant<GemmTile<false, 2, 256, 2>>(product, config, sm_count, stream, epilogue);
  }
  // A cluster's second row of tiles would be empty.
  return launch_variant<GemmTile<false, 2, 256, 1>>(product, config, sm_count, stream, epilogue);
}

}  // namespace slimexx::kernels::lm_head

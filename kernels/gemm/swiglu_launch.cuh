// The tiles of products that end in SwiGLU, and the host side of launching one.
#pragma once
#include "kernels/gemm/launch.cuh"
#include "kernels/gemm/swiglu_epilogue.cuh"

namespace slimexx::kernels {

template <class... Tiles>
struct TileList {};

using PlainSwigluTiles =
    TileList<GemmTile<false, 2, 256, 2>, GemmTile<false, 2, 192, 2>, GemmTile<false, 2, 160, 2>,
             GemmTile<false, 2, 128, 2>, GemmTile<false, 2, 256, 1>, GemmTile<false, 2, 224, 1>,
             GemmTile<false, 2, 208, 1>, GemmTile<false, 2, 192, 1>, GemmTile<false, 2, 160, 1>,
             GemmTile<false, 2, 128, 1>, GemmTile<false, 2, 96, 1>, GemmTile<false, 3, 192, 1>>;
using NarrowSwigluTiles =
    TileList<GemmTile<false, 1, 32, 1>, GemmTile<false, 1, 48, 1>, GemmTile<false, 1, 64, 1>,
             GemmTile<false, 1, 96, 1>, GemmTile<false, 1, 160, 1>, GemmTile<false, 1, 192, 1>,
             GemmTile<false, 1, 208, 1>, GemmTile<false, 1, 256, 1>>;
using SwappedSwigluTiles =
    TileList<GemmTile<true, 1, 32, 1>, GemmTile<true, 1, 48, 1>, GemmTile<true, 1, 64, 1>,
             GemmTile<true, 1, 96, 1>, GemmTile<true, 1, 160, 1>, GemmTile<true, 2, 96, 1>,
             GemmTile<true, 2, 160, 1>, GemmTile<true, 2, 192, 1>, GemmTile<true, 3, 160, 1>,
             GemmTile<true, 3, 192, 1>>;

const char* launch_plain_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                cudaStream_t stream);
const char* launch_narrow_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                 cudaStream_t stream);
const char* launch_swapped_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                  cudaStream_t stream);

// args.y is h; the product has args.n features.
template <class Tile>
bool describe_swiglu(GemmProblem& p, const GemmArgs& args, const GemmConfig& config) {
  GemmArgs product = args;
  product.y_stride = 0;
  if (!describe_problem<Tile>(p, product, config, true)) return false;
  const int64_t f = args.n / 2;
  p.features = static_cast<int>(f);
  p.y_stride = args.y_stride == 0 ? f : args.y_stride;
  const int weight_rows = (Tile::kSwap ? p.rows : p.columns) / Tile::kCluster;
  CUtensorMap* weights = Tile::kSwap ? &p.a : &p.b;
  return encode_gate_up(weights, args.w, f, args.k, weight_rows, Tile::kBoxes) &&
         encode_bf16_matrix(&p.y, args.y, args.m, f, p.y_stride, 64);
}

template <class Tile>
const char* launch_swiglu(const GemmArgs& args, const GemmConfig& config, int sm_count,
                          cudaStream_t stream) {
  GemmProblem problem{};
  if (!describe_swiglu<Tile>(problem, args, config)) return map_refused();
  return start_variant<GateUpTile<Tile>>(problem, config, sm_count, stream, StoreSwiglu{});
}

template <class... Tiles>
const char* launch_matching_swiglu(TileList<Tiles...>, const GemmArgs& args,
                                   const GemmConfig& config, int sm_count, cudaStream_t stream) {
  const char* fault = no_such_variant();
  static_cast<void>(((matches<Tiles>(config) &&
                      (fault = launch_swiglu<Tiles>(args, config, sm_count, stream), true)) ||
                     ...));
  return fault;
}

}  // namespace slimexx::kernels

// Tiles of products with SwiGLU as epilogue, and the host side of a launch.
#pragma once
#include "kernels/gemm/launch.cuh"
#include "kernels/gemm/swiglu/swiglu_epilogue.cuh"

namespace slimexx::kernels {

template <class... Tiles>
struct TileList {};

using SwigluPlain128And192 =
    TileList<PlainTile<128, 256, 2>, PlainTile<128, 192, 2>, PlainTile<128, 160, 2>,
             PlainTile<128, 128, 2>, PlainTile<128, 256>, PlainTile<128, 224>, PlainTile<128, 208>,
             PlainTile<128, 192>, PlainTile<128, 160>, PlainTile<128, 128>, PlainTile<128, 96>,
             PlainTile<192, 192>>;
using SwigluPlain64 =
    TileList<PlainTile<64, 32>, PlainTile<64, 48>, PlainTile<64, 64>, PlainTile<64, 96>,
             PlainTile<64, 160>, PlainTile<64, 192>, PlainTile<64, 208>, PlainTile<64, 256>>;
using SwigluSwapped =
    TileList<SwappedTile<64, 32>, SwappedTile<64, 48>, SwappedTile<64, 64>, SwappedTile<64, 96>,
             SwappedTile<64, 160>, SwappedTile<128, 96>, SwappedTile<128, 160>,
             SwappedTile<128, 192>, SwappedTile<192, 160>, SwappedTile<192, 192>>;

const char* launch_swiglu_plain_128_192(const GemmArgs& args, const GemmConfig& config,
                                        int sm_count, cudaStream_t stream);
const char* launch_swiglu_plain_64(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                   cudaStream_t stream);
const char* launch_swiglu_swapped(const GemmArgs& args, const GemmConfig& config, int sm_count,
                                  cudaStream_t stream);

// args.y is h; args.n counts the features of the product, twice those of h.
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

// Host side of one compiled variant of the FP8 product: tensor maps, grid, launch.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/float8/kernel.cuh"
#include "kernels/float8/variants.h"
#include "kernels/gemm/swiglu/swiglu_epilogue.cuh"

namespace slimexx::kernels {

// A matrix of bytes in boxes of box_rows x 128.
inline bool encode_float8_matrix(CUtensorMap* map, const void* base, int64_t rows, int64_t columns,
                                 int64_t pitch, int box_rows) {
  return encode_tensor<2>(map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, base, {columns, rows}, {pitch},
                          {kBlockBytes, box_rows});
}

// Encodes the rows of gate and up of w[experts, 2 f, k] as an operand with alternating rows, as
// encode_gate_up does for bf16.
inline bool encode_float8_gate_up(CUtensorMap* map, const void* base, int64_t f, int64_t k,
                                  int64_t pitch, int box_rows, int64_t experts = 1) {
  const int64_t groups = (2 * experts - 1) * f / 8;
  return encode_tensor<5>(
      map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, base, {kBlockBytes, 8, 2, groups, k / kBlockBytes},
      {pitch, f * pitch, 8 * pitch, kBlockBytes}, {kBlockBytes, 8, 2, box_rows / kPairRows, 1});
}

// Tiles of tokens begin at multiples of 4, because copies of scales have whole 16 bytes.
inline int round_up_4(int64_t tokens) { return static_cast<int>(divide_up(tokens, 4) * 4); }

// The x that a QuantisingTile reads.
inline void describe_float8_input(Float8Problem& p, const void* x, int64_t x_stride, int64_t rows,
                                  int64_t k) {
  p.x = static_cast<const __nv_bfloat16*>(x);
  p.x_stride = x_stride == 0 ? k : x_stride;
  p.x_rows = static_cast<int>(rows);
  p.x_pitch = input_pitch(p.x_rows);
  p.input_bytes = input_bytes(p.x_rows, p.k_blocks);
}

// As in gemm/, the last tiles begin early enough to be full, and recompute some elements.
template <class Tile>
void describe_float8_tiles(Float8Problem& p, const Fp8GemmArgs& args, const Fp8GemmConfig& config) {
  const int room = Tile::kSwap ? Tile::kColumns : Tile::kRows;
  int tokens = Tile::kSwap && config.tokens > 0 ? config.tokens : room;
  if (Tile::kSwap && tokens >= args.m) tokens = static_cast<int>(args.m);
  if (tokens < args.m) tokens = std::max(4, tokens / 4 * 4);
  const int features = Tile::kSwap ? config.rows : Tile::kColumns;
  p.tokens = static_cast<int>(args.m);
  p.features = static_cast<int>(args.n);
  p.tile_tokens = tokens;
  p.rows = Tile::kSwap ? config.rows : Tile::kRows;
  p.columns = Tile::kSwap ? tokens : Tile::kColumns;
  p.last_token = round_up_4(std::max<int64_t>(0, args.m - tokens));
  p.last_feature = std::max(0, p.features - features);
  const int64_t token_tiles = divide_up(args.m, tokens);
  const int64_t feature_tiles = divide_up(args.n, features);
  p.row_clusters = static_cast<int>(Tile::kSwap ? feature_tiles : token_tiles);
  p.column_clusters =
      static_cast<int>(divide_up(Tile::kSwap ? token_tiles : feature_tiles, Tile::kCluster));
  p.tiles = p.row_clusters * p.column_clusters;
  p.weights_read_once = token_tiles == 1;
  p.k_blocks = static_cast<int>(args.k / kFp8GroupColumns);
  p.band = std::max(1, config.band);
  p.lead = config.lead;
  if (Tile::kQuantises) describe_float8_input(p, args.x, args.x_stride, args.m, args.k);
  p.stages = count_float8_stages<Tile>(p.rows, p.input_bytes);
}

template <class Tile>
bool describe_float8_problem(Float8Problem& p, const Fp8GemmArgs& args,
                             const Fp8GemmConfig& config) {
  describe_float8_tiles<Tile>(p, args, config);
  const int64_t f = Tile::kGateUp ? args.n / 2 : args.n;  // features of y
  p.features = static_cast<int>(f);
  p.y_base = args.y;
  p.y_stride = args.y_stride == 0 ? f : args.y_stride;
  p.last_unit = static_cast<int>(f / kFp8UnitRows) - 1;
  p.y_is_f32 = args.output == GemmOutput::kF32;
  p.overlap = args.overlap_previous;
  p.bias = static_cast<const __nv_bfloat16*>(args.bias);
  p.x_scales = args.x_scales;
  p.w_scales = args.w_scales;
  p.x_scale_stride = args.x_scale_stride == 0 ? fp8_scale_stride(args.m) : args.x_scale_stride;
  p.w_scale_stride = args.w_scale_stride == 0 ? p.k_blocks : args.w_scale_stride;
  if (!Tile::kSwap && !p.y_is_f32 && !encode_bf16_matrix(&p.y, args.y, args.m, f, p.y_stride, 64)) {
    return false;
  }
  CUtensorMap* w = Tile::kSwap ? &p.a : &p.b;
  CUtensorMap* x = Tile::kSwap ? &p.b : &p.a;
  const int row_box = p.rows / Tile::kCluster;
  const int w_box = Tile::kSwap ? row_box : p.columns, x_box = Tile::kSwap ? p.columns : row_box;
  const int64_t pitch = args.w_stride == 0 ? args.k : args.w_stride;
  if (!Tile::kQuantises && !encode_float8_matrix(x, args.x, args.m, args.k, args.k, x_box)) {
    return false;
  }
  return Tile::kGateUp ? encode_float8_gate_up(w, args.w, f, args.k, pitch, w_box)
                       : encode_float8_matrix(w, args.w, args.n, args.k, pitch, w_box);
}

template <class Tile, class Epilogue>
const char* launch_float8_kernel(void (*kernel)(Float8Problem, Epilogue), const Float8Problem& p,
                                 int sm_count, cudaStream_t stream, const Epilogue& epilogue) {
  const int clusters = sm_count / Tile::kCluster;
  cudaError_t error = allow_shared_bytes(kernel, kMaxSharedBytes);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (p.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (Tile::kCluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {Tile::kCluster, 1, 1};
  }
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(Tile::kCluster * std::min(p.tiles, clusters)));
  launch.blockDim = dim3(Tile::kThreads);
  launch.dynamicSmemBytes = float8_shared_bytes<Tile>(p.rows, p.stages, p.input_bytes);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = count;
  error = cudaLaunchKernelEx(&launch, kernel, p, epilogue);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Tile, class Epilogue>
const char* start_float8_variant(Float8Problem p, int sm_count, cudaStream_t stream,
                                 const Epilogue& epilogue) {
  // Use at most as many stages as a thread block has K blocks; see start_variant of
  // gemm/launch.cuh.
  if (Tile::kSwap) {
    const int64_t most = int64_t{divide_up(p.tiles, sm_count / Tile::kCluster)} * p.k_blocks;
    p.stages = static_cast<int>(std::clamp<int64_t>(most, 2, p.stages));
  }
  return launch_float8_kernel<Tile>(float8_gemm_kernel<Tile, Epilogue>, p, sm_count, stream,
                                    epilogue);
}

template <class Tile>
bool matches_float8(const Fp8GemmConfig& c) {
  const bool rows_fit = Tile::kSwap
                            ? c.rows > Tile::kRows - 64 && c.rows <= Tile::kRows &&
                                  c.rows % ((Tile::kGateUp ? kPairRows : 8) * Tile::kCluster) == 0
                            : c.rows == Tile::kRows;
  return c.swap_operands == Tile::kSwap && rows_fit && c.columns == Tile::kColumns &&
         c.cluster == Tile::kCluster && c.lead >= 0 && c.lead < 3 && c.tokens >= 0 &&
         c.tokens <= Tile::kTokens;
}

template <class Tile, class... Rest>
const char* launch_float8_matching(const Fp8GemmArgs& args, const Fp8GemmConfig& config,
                                   int sm_count, cudaStream_t stream) {
  if (matches_float8<Tile>(config)) {
    Float8Problem problem{};
    if (!describe_float8_problem<Tile>(problem, args, config)) {
      return "fp8_gemm: the driver refused a tensor map of x, w or y";
    }
    using Epilogue = std::conditional_t<Tile::kGateUp, StoreSwiglu, StoreProduct>;
    return start_float8_variant<Tile>(problem, sm_count, stream, Epilogue{});
  }
  if constexpr (sizeof...(Rest) > 0) {
    return launch_float8_matching<Rest...>(args, config, sm_count, stream);
  } else {
    return "fp8_gemm: no variant is compiled for this tile";
  }
}

}  // namespace slimexx::kernels

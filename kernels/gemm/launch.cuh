// Host side of one compiled variant: tensor maps, grid, launch.
#pragma once
#include <algorithm>
#include <type_traits>

#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/gemm/kernel.cuh"
#include "kernels/gemm/variants.h"

namespace slimexx::kernels {

// A box has at most as many rows as x, because TMA is slow when it fills rows with zeros. For the
// same reason the last tiles of y start early enough to be full, and recompute some elements.
template <class Tile>
int choose_tile_tokens(const GemmArgs& args, const GemmConfig& config) {
  const int room = Tile::kSwap ? Tile::kColumns : Tile::kRows;
  return static_cast<int>(std::min<int64_t>(config.tokens == 0 ? room : config.tokens, args.m));
}

inline int64_t pitch_of(const GemmArgs& args, int64_t stride) {
  return stride == 0 ? args.k : stride;
}

template <class Tile>
bool encode_operand(CUtensorMap* map, const GemmProblem& p, const void* base, int64_t rows,
                    int64_t k, int64_t pitch, int box_rows) {
  return p.whole_boxes ? encode_bf16_boxes(map, base, rows, k, pitch, box_rows, Tile::kBoxes)
                       : encode_bf16_matrix(map, base, rows, k, pitch, box_rows);
}

template <class Tile>
bool describe_problem(GemmProblem& p, const GemmArgs& args, const GemmConfig& config,
                      bool repeat_elements) {
  const int tokens = choose_tile_tokens<Tile>(args, config);
  const int features = Tile::kSwap ? config.rows : Tile::kColumns;
  const int64_t token_tiles = divide_up(args.m, tokens);
  const int64_t feature_tiles = divide_up(args.n, features);
  p.y_base = args.y;
  p.y_stride = args.y_stride == 0 ? args.n : args.y_stride;
  p.overlap = args.overlap_previous;
  p.y_is_f32 = args.output == GemmOutput::kF32;
  p.bias = static_cast<const __nv_bfloat16*>(args.bias);
  p.tokens = static_cast<int>(args.m);
  p.features = static_cast<int>(args.n);
  p.tile_tokens = tokens;
  // With one copy for all boxes of a stage, the boxes are contiguous in shared memory.
  p.whole_boxes = Tile::kBoxes > 1 && args.k % kBoxK == 0;
  const int room = (tokens + 7) / 8 * 8;
  p.rows = Tile::kSwap ? config.rows : Tile::kFewerRows ? room : Tile::kRows;
  p.columns =
      Tile::kSwap && Tile::kBoxes > 1 ? std::max(room, Tile::kColumns - 56) : Tile::kColumns;
  p.last_token = repeat_elements ? std::max(0, p.tokens - tokens) : INT32_MAX;
  p.last_feature = repeat_elements ? std::max(0, p.features - features) : INT32_MAX;
  p.stages = Tile::count_stages(p.rows, config.blocks_per_sm, p.columns);
  p.row_clusters =
      static_cast<int>(divide_up(Tile::kSwap ? feature_tiles : token_tiles, Tile::kRowCluster));
  p.column_clusters =
      static_cast<int>(divide_up(Tile::kSwap ? token_tiles : feature_tiles, Tile::kColumnCluster));
  p.tiles = p.row_clusters * p.column_clusters;
  // If several tiles read the weights, they must not be loaded evict-first: the L2 may be full of
  // lines of normal priority (keys and values, after attention) and drop the weights before the
  // second read.
  p.weights_read_once = token_tiles == 1;
  p.k_blocks = static_cast<int>(divide_up(args.k, Tile::kBlockK));
  p.band = config.band > Tile::kRowCluster ? config.band / Tile::kRowCluster : 1;
  p.lead = config.lead;
  if (Tile::kStaged && !Tile::kSwap && !p.y_is_f32 &&
      !encode_bf16_matrix(&p.y, args.y, args.m, args.n, p.y_stride, 64)) {
    return false;
  }
  const int weight_rows = (Tile::kSwap ? p.rows : p.columns) / Tile::kCluster;
  const int token_rows = p.whole_boxes ? (Tile::kSwap ? p.columns : p.rows) : tokens;
  CUtensorMap* weights = Tile::kSwap ? &p.a : &p.b;
  CUtensorMap* x = Tile::kSwap ? &p.b : &p.a;
  return encode_operand<Tile>(weights, p, args.w, args.n, args.k, pitch_of(args, args.w_stride),
                              weight_rows) &&
         encode_operand<Tile>(x, p, args.x, args.m, args.k, pitch_of(args, args.x_stride),
                              token_rows);
}

// Queues the kernel for a described problem.
template <class Tile, class Epilogue>
const char* start_variant(GemmProblem problem, const GemmConfig& config, int sm_count,
                          cudaStream_t stream, const Epilogue& epilogue) {
  if (problem.stages < 2)
    return "gemm: two thread blocks of this tile do not fit on one multiprocessor";
  const int clusters = sm_count * config.blocks_per_sm / Tile::kCluster;
  // Use at most as many stages as a thread block has K blocks. The next kernel can use the
  // remaining shared memory and load its weights while this kernel runs.
  if (Tile::kFewerRows && !Tile::kGrouped) {
    const int64_t most = int64_t{divide_up(problem.tiles, clusters)} * problem.k_blocks;
    problem.stages = static_cast<int>(std::clamp<int64_t>(most, 2, problem.stages));
  }
  cudaError_t error = cudaFuncSetAttribute(
      gemm_kernel<Tile, Epilogue>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (problem.overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (Tile::kCluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {Tile::kCluster, 1, 1};
  }
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(Tile::kCluster * (problem.tiles < clusters ? problem.tiles : clusters));
  launch.blockDim = dim3(Tile::kThreads);
  launch.dynamicSmemBytes = Tile::shared_bytes(problem.rows, problem.columns, problem.stages);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = count;
  error = cudaLaunchKernelEx(&launch, gemm_kernel<Tile, Epilogue>, problem, epilogue);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

inline const char* map_refused() { return "gemm: the driver refused a tensor map of x, w or y"; }

template <class Tile, class Epilogue = StoreProduct>
const char* launch_variant(const GemmArgs& args, const GemmConfig& config, int sm_count,
                           cudaStream_t stream, const Epilogue& epilogue = {}) {
  GemmProblem problem{};
  constexpr bool kRepeat = std::is_same_v<Epilogue, StoreProduct>;
  if (!describe_problem<Tile>(problem, args, config, kRepeat)) return map_refused();
  return start_variant<Tile>(problem, config, sm_count, stream, epilogue);
}

template <class Tile>
bool matches(const GemmConfig& c) {
  const bool rows_fit = Tile::kSwap ? c.rows > Tile::kRows - 64 && c.rows <= Tile::kRows
                                    : c.rows == Tile::kRows && c.ping_pong == Tile::kPingPong &&
                                          (c.blocks_per_sm == 1 || Tile::kGroups == 1);
  const int room = Tile::kSwap ? Tile::kColumns : Tile::kRows;
  return c.swap_operands == Tile::kSwap && rows_fit && c.rows % (8 * Tile::kColumnCluster) == 0 &&
         c.columns == Tile::kColumns && c.cluster == Tile::kCluster && c.tokens >= 0 &&
         c.tokens <= room;
}

inline const char* no_such_variant() { return "gemm: no variant is compiled for this tile"; }

template <class Tile, class... Rest>
const char* launch_matching(const GemmArgs& args, const GemmConfig& config, int sm_count,
                            cudaStream_t stream) {
  if (matches<Tile>(config)) return launch_variant<Tile>(args, config, sm_count, stream);
  if constexpr (sizeof...(Rest) > 0) {
    return launch_matching<Rest...>(args, config, sm_count, stream);
  } else {
    return no_such_variant();
  }
}

}  // namespace slimexx::kernels

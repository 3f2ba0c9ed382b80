// Host side of one compiled variant: tensor maps, grid, launch.
#pragma once
#include "kernels/common/tensor_map.cuh"
#include "kernels/gemm/kernel.cuh"
#include "kernels/gemm/variants.h"

namespace slimexx::kernels {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class Tile>
bool describe_problem(GemmProblem& p, const GemmArgs& args, const GemmConfig& config) {
  const int64_t a_rows = Tile::kSwap ? args.n : args.m;
  const int64_t b_rows = Tile::kSwap ? args.m : args.n;
  const void* a = Tile::kSwap ? args.w : args.x;
  const void* b = Tile::kSwap ? args.x : args.w;
  p.y_base = args.y;
  p.y_stride = args.y_stride == 0 ? args.n : args.y_stride;
  p.y_is_f32 = args.output == GemmOutput::kF32;
  p.bias = static_cast<const __nv_bfloat16*>(args.bias);
  p.tokens = static_cast<int>(args.m);
  p.features = static_cast<int>(args.n);
  p.rows = config.rows;
  p.stages = Tile::count_stages(config.rows, config.blocks_per_sm);
  p.row_clusters = static_cast<int>(divide_up(a_rows, config.rows * Tile::kCluster));
  p.column_tiles = static_cast<int>(divide_up(b_rows, Tile::kColumns));
  p.tiles = p.row_clusters * p.column_tiles;
  p.k_blocks = static_cast<int>(divide_up(args.k, Tile::kBlockK));
  p.band = config.band > Tile::kCluster ? config.band / Tile::kCluster : 1;
  p.lead = config.lead;
  return encode_bf16_matrix(&p.a, a, a_rows, args.k, args.k, config.rows) &&
         encode_bf16_matrix(&p.b, b, b_rows, args.k, args.k, Tile::kColumns / Tile::kCluster) &&
         (Tile::kSwap || p.y_is_f32 ||
          encode_bf16_matrix(&p.y, args.y, args.m, args.n, p.y_stride, 64));
}

template <class Tile, class Epilogue = StoreProduct>
const char* launch_variant(const GemmArgs& args, const GemmConfig& config, int sm_count,
                           cudaStream_t stream, const Epilogue& epilogue = {}) {
  GemmProblem problem{};
  if (!describe_problem<Tile>(problem, args, config)) {
    return "gemm: the driver refused a tensor map of x, w or y";
  }
  if (problem.stages < 2) return "gemm: two blocks of this tile do not fit one multiprocessor";
  cudaError_t error = cudaFuncSetAttribute(
      gemm_kernel<Tile, Epilogue>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = Tile::kCluster;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  const int clusters = sm_count * config.blocks_per_sm / Tile::kCluster;
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(Tile::kCluster * (problem.tiles < clusters ? problem.tiles : clusters));
  launch.blockDim = dim3(Tile::kThreads);
  launch.dynamicSmemBytes = Tile::shared_bytes(config.rows, problem.stages);
  launch.stream = stream;
  launch.attrs = attributes;
  launch.numAttrs = args.overlap_previous ? 2 : 1;
  error = cudaLaunchKernelEx(&launch, gemm_kernel<Tile, Epilogue>, problem, epilogue);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

template <class Tile>
bool matches(const GemmConfig& c) {
  const bool rows_fit = Tile::kSwap ? c.rows > Tile::kRows - 64 && c.rows <= Tile::kRows
                                    : c.rows == Tile::kRows && c.blocks_per_sm == 1;
  return c.swap_operands == Tile::kSwap && rows_fit && c.rows % 8 == 0 &&
         c.columns == Tile::kColumns && c.cluster == Tile::kCluster;
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

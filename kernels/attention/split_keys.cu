// Split keys (split-KV): a piece of work is one segment of keys for 64 (query, head) rows that
// share a kv head. This kernel is for short chunks; few_rows.cu is for fewer rows, as in decode.
// Persistent thread blocks take pieces round robin; the loading warp runs ahead across pieces. A
// second kernel merges the segments of a row from left to right, with the arithmetic of
// whole_rows.cu.
//
// Roles: warps 0 to 3 compute (key_walk.cuh), warp 4 loads keys and values (key_stream.cuh); FP8:
// warps 5 to 7 dequantise them (key_converter.cuh). Barriers, for each stage of either ring: full,
// 1 arrival (the loading warp; FP8: 3, lane 0 of each converting warp); empty, 4 (lane 0 of each
// computing warp); FP8: loaded, 1 (the loading warp). Named barrier 1: the computing warpgroup.
//
// Cost per block of 128 keys, head dim 128: 64 KB of keys and values take about 3500 clocks at 4.28
// TB/s over 132 SMs; products padded to 64 rows take 1024 clocks and the softmax about 1000. So
// memory bandwidth is the limit, although one warpgroup does products and softmax almost without
// overlap. Partial results of a segment are 512 bytes per row, against 512 KB of keys and values
// read for all rows of a kv head.
#include "kernels/attention/key_converter.cuh"
#include "kernels/attention/key_walk.cuh"
#include "kernels/attention/launch.cuh"
#include "kernels/common/device.h"
#include "kernels/common/early_launch.cuh"

namespace slimexx::kernels::attention {
namespace {

constexpr int kTileRows = 64;
template <bool kFp8>
constexpr int kThreads = 160 + (kFp8 ? kConvertingWarps * 32 : 0);

template <int kHeadDim>
struct Shared {
  static constexpr int kStages = 384 / kHeadDim;
  using Rings = KeyRings<kHeadDim, kStages>;
  static constexpr uint32_t kQueryHalfBytes = kTileRows * 128;
  static constexpr uint32_t kQueryBytes = Rings::kHalves * kQueryHalfBytes;
  static constexpr uint32_t kBarriersAt = kQueryBytes + Rings::kBytes;
  static constexpr uint32_t kFp8At = kBarriersAt + Rings::kBarrierBytes;
  template <bool kFp8>
  static constexpr uint32_t kBytes = kFp8At + (kFp8 ? ByteStages<kHeadDim, kStages>::kBytes : 0);
};

struct Piece {
  Sequence sequence;
  int index, head, segment, first_row;
  KeyRange range;
};

// Finds piece `index` of the launch; returns false past the last piece. Within a sequence the kv
// head changes fastest, so that neighbouring memory is read at the same time. The range is empty if
// all queries of the tile come before the segment.
__device__ __forceinline__ bool find_piece(const Problem& problem, WorkCursor& cursor, int index,
                                           Piece& piece) {
  int within = 0;
  piece.index = cursor.find(problem, index, within, [&](const Sequence& sequence) {
    return divide_up(sequence.queries * problem.group, kTileRows) *
           divide_up(sequence.keys(), kAttentionSegmentKeys) * problem.kv_heads;
  });
  if (piece.index < 0) return false;
  piece.sequence = read_sequence(problem, piece.index);
  const int segments = divide_up(piece.sequence.keys(), kAttentionSegmentKeys);
  piece.head = within % problem.kv_heads;
  piece.segment = within / problem.kv_heads % segments;
  piece.first_row = within / problem.kv_heads / segments * kTileRows;
  const int rows = piece.sequence.queries * problem.group;
  const int last_query = (min(piece.first_row + kTileRows, rows) - 1) / problem.group;
  const int end = divide_up(piece.sequence.context + last_query + 1, kBlock);
  const int first = piece.segment * kSegmentBlocks;
  piece.range = {piece.index,           piece.head, piece.sequence.first_token,
                 piece.sequence.keys(), first,      min(first + kSegmentBlocks, end)};
  return true;
}

__device__ __forceinline__ bool is_empty(const Piece& piece) {
  return piece.range.first_block >= piece.range.last_block;
}

// Copies the tile's queries row by row to the swizzled tile in shared memory; rows past the end are
// 0.
template <int kHeadDim>
__device__ __forceinline__ void gather_queries(const Problem& problem, const Piece& piece,
                                               uint32_t destination) {
  constexpr int kChunks = kHeadDim / 8;
  const int rows = piece.sequence.queries * problem.group;
  uint4 x[kTileRows * kChunks / 128];
#pragma unroll
  for (int i = 0; i < kTileRows * kChunks / 128; ++i) {
    const int index = i * 128 + threadIdx.x;
    const int row = piece.first_row + index / kChunks;
    x[i] = make_uint4(0, 0, 0, 0);
    if (row < rows) {
      const int64_t token = piece.sequence.first_token + row / problem.group;
      const int head = piece.head * problem.group + row % problem.group;
      x[i] = *reinterpret_cast<const uint4*>(problem.q + token * problem.q_stride +
                                             head * kHeadDim + index % kChunks * 8);
    }
  }
#pragma unroll
  for (int i = 0; i < kTileRows * kChunks / 128; ++i) {
    const int index = i * 128 + threadIdx.x;
    const int row = index / kChunks, chunk = index % kChunks;
    const uint32_t address =
        destination + chunk / 8 * (kTileRows * 128) + row * 128 + ((chunk % 8) ^ (row % 8)) * 16;
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(x[i].x),
                 "r"(x[i].y), "r"(x[i].z), "r"(x[i].w)
                 : "memory");
  }
}

// Stores outputs of rows whose keys all lie in the first segment, and partial results of other
// rows. Rows without keys in this segment store nothing.
template <int kHeadDim>
__device__ __forceinline__ void store_piece(const Problem& problem, const Piece& piece,
                                            const RowTile<kHeadDim>& rows) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (rows.position[i] < piece.segment * kAttentionSegmentKeys) continue;
    const int row = piece.first_row + threadIdx.x / 32 * 16 + lane / 4 + 8 * i;
    if (rows.position[i] >= kAttentionSegmentKeys) {
      const int64_t at = partial_row(problem, piece.segment, piece.sequence, piece.head, row);
      if (lane % 4 == 0) {
        problem.partial_state[at] = make_float2(rows.state.maximum[i], rows.state.sum[i]);
      }
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        *reinterpret_cast<float2*>(problem.partial_output + at * kHeadDim + 8 * j + lane % 4 * 2) =
            make_float2(rows.output[4 * j + 2 * i], rows.output[4 * j + 2 * i + 1]);
      }
      continue;
    }
    const int64_t token = piece.sequence.first_token + row / problem.group;
    const int head = piece.head * problem.group + row % problem.group;
    if (problem.lse != nullptr && lane % 4 == 0) {
      problem.lse[token * problem.query_heads + head] =
          log_sum_exp(rows.state.maximum[i], rows.state.sum[i], problem.scale);
    }
    const float inverse = __frcp_rn(rows.state.sum[i]);
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
      *reinterpret_cast<uint32_t*>(problem.out + token * problem.out_stride + head * kHeadDim +
                                   8 * j + lane % 4 * 2) =
          finish_pair(rows.output[4 * j + 2 * i], rows.output[4 * j + 2 * i + 1], inverse);
    }
  }
}

template <int kHeadDim>
__device__ __forceinline__ void compute_pieces(const Problem& problem, uint32_t shared) {
  using Layout = Shared<kHeadDim>;
  KeyWalk<kHeadDim, Layout::kStages, OneSegment<kHeadDim>> walk{
      {shared + Layout::kQueryBytes, shared + Layout::kBarriersAt},
      describe_swizzled_tile(shared),
      Layout::kQueryHalfBytes,
      0,
      1,
      problem.c,
      {},
      {},
      {}};
  WorkCursor cursor;
  Piece piece;
  for (int index = blockIdx.x; find_piece(problem, cursor, index, piece); index += gridDim.x) {
    if (is_empty(piece)) continue;
    sync_named(1, 128);  // all warps have finished the products that read the previous queries
    gather_queries<kHeadDim>(problem, piece, shared);
    fence_shared_for_async();
    sync_named(1, 128);
    RowTile<kHeadDim> rows;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = piece.first_row + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
      const int query = row / problem.group;
      rows.position[i] = query < piece.sequence.queries ? piece.sequence.context + query : -1;
    }
    const int first_position = piece.sequence.context + piece.first_row / problem.group;
    walk.walk(rows, piece.range, (first_position + 1) / kBlock);
    sum_over_quad(rows.state);
    store_piece<kHeadDim>(problem, piece, rows);
  }
}

// Calls work(range) for the keys of each piece of work of this thread block.
template <class Work>
__device__ __forceinline__ void for_each_range(const Problem& problem, const Work& work) {
  WorkCursor cursor;
  Piece piece;
  for (int index = blockIdx.x; find_piece(problem, cursor, index, piece); index += gridDim.x) {
    if (!is_empty(piece)) work(piece.range);
  }
}

template <int kHeadDim, bool kFp8>
__global__ void __launch_bounds__(kThreads<kFp8>, 1)
    attend_segments(const __grid_constant__ Problem problem,
                    const __grid_constant__ CUtensorMap key_map,
                    const __grid_constant__ CUtensorMap value_map) {
  using Layout = Shared<kHeadDim>;
  extern __shared__ __align__(1024) uint8_t memory[];
  const uint32_t shared = shared_address(memory);
  const typename Layout::Rings rings{shared + Layout::kQueryBytes, shared + Layout::kBarriersAt};
  const ByteStages<kHeadDim, Layout::kStages> bytes{shared + Layout::kFp8At};
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle is a function of the address
    prefetch_tensor_map(&key_map);
    prefetch_tensor_map(&value_map);
    rings.init(4, kFp8 ? kConverterArrivals : 1);
    if constexpr (kFp8) bytes.init();
    fence_mbarrier_init();
  }
  __syncthreads();
  enter_kernel();  // the previous kernel wrote the queries and perhaps the lengths
  if (threadIdx.x < 128) {
    compute_pieces<kHeadDim>(problem, shared);
    return;
  }
  if (!kFp8 || threadIdx.x < 160) {
    KeyLoader<kHeadDim, Layout::kStages, kFp8> loader{problem, key_map, value_map, rings,
                                                      bytes,   {},      {}};
    for_each_range(problem, [&](const KeyRange& range) { loader.load(range); });
    return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32 - 5;
  KeyConverter<kHeadDim, Layout::kStages> converter{rings, bytes, warp, {}, {}};
  for_each_range(problem, [&](const KeyRange& range) { converter.convert(range); });
}

template <int kHeadDim, bool kFp8>
cudaError_t launch(const Launch& launch, cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return error;
  auto* kernel = attend_segments<kHeadDim, kFp8>;
  const int64_t tiles = (launch.problem.max_rows + kTileRows - 1) / kTileRows;
  const int64_t pieces =
      tiles * launch.max_segments * launch.problem.sequences * launch.problem.kv_heads;
  const auto blocks = static_cast<unsigned>(pieces < sm_count ? pieces : sm_count);
  const LaunchShape shape{dim3(blocks), kThreads<kFp8>, Shared<kHeadDim>::template kBytes<kFp8>};
  return launch_early(kernel, shape, stream, launch.problem, launch.key_map, launch.value_map);
}

template <bool kFp8>
cudaError_t launch(const Launch& parameters, int head_dim, cudaStream_t stream) {
  return head_dim == 128 ? launch<128, kFp8>(parameters, stream)
                         : launch<64, kFp8>(parameters, stream);
}

}  // namespace

cudaError_t launch_split_keys(const Launch& parameters, int head_dim, cudaStream_t stream) {
  const cudaError_t error = parameters.problem.k_scales != nullptr
                                ? launch<true>(parameters, head_dim, stream)
                                : launch<false>(parameters, head_dim, stream);
  const bool merges = parameters.max_segments > 1;
  return error == cudaSuccess && merges ? launch_merge(parameters, head_dim, stream) : error;
}

}  // namespace slimexx::kernels::attention

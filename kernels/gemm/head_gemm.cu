// One product per head, with the kernel of kernel.cuh; a tile is tokens x features of one head.
//
// Cost, GLM-4.7-Flash (20 heads, 192 to 512 and 512 to 256), 8192 tokens: 32 and 43 GFLOP; 63 MB in
// and 168 MB out, and 168 MB in and 84 MB out. That is 55 and 60 us of memory traffic at 4.2 TB/s,
// and 49 and 65 us of tensor cores.
#include "slimexx/kernels/head_gemm.h"

#include "kernels/common/device.h"
#include "kernels/gemm/configs.h"
#include "kernels/gemm/launch.cuh"
#include "kernels/rows/rotate.cuh"

namespace slimexx::kernels {
namespace {

// Epilogue: rounds, and stores into the head's part of each row of y. Narrow tiles are stored from
// registers, others through shared memory, 16 bytes at a time.
struct StoreHead {
  HeadRotation rotation;  // y.data null: no rotation

  // Warps 2 and 3 of a block with narrow tiles run this. For each of the block's tiles they rotate
  // a share of the tokens of the tile's head. If there are more tiles than thread blocks, a block
  // loops over tiles, as multiply_tiles does.
  template <class Tile>
  __device__ __forceinline__ void work_beside(const GemmProblem& p, int warp) const {
    if (rotation.y.data == nullptr) return;
    await_previous_grids();
    const auto first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
    for (int tile = first; tile < p.tiles; tile += step) {
      const int head = tile / p.feature_tiles, within = tile - head * p.feature_tiles;
      for (int token = 2 * within + warp; token < p.tokens; token += 2 * p.feature_tiles) {
        rotate_token(token, head);
      }
    }
  }

  __device__ __forceinline__ void rotate_token(int token, int head) const {
    auto* y = rows::element_at(rotation.y, token, head, 0);
    const auto* x = rows::element_at(rotation.x, token, head, 0);
    for (int pair = static_cast<int>(threadIdx.x) % 32; 2 * pair < rotation.width; pair += 32) {
      rows::rotate_pair<false>(y, x, rotation.tables, token, pair);
    }
  }

  template <class Tile>
  __device__ __forceinline__ void finish_head(const GemmProblem& p,
                                              const float (&acc)[Tile::kColumns / 2], int row,
                                              int column, int head, uint8_t* staging,
                                              int group) const {
    const int tokens = min(min(p.tile_tokens - group * 64, 64), p.tokens - row);
    const int64_t before = head * p.y_head_stride;
    if constexpr (!Tile::kStaged) {
      return store_plain_pairs<__nv_bfloat16>(p, acc, row, tokens, column, before);
    } else {
      store_staged<Tile>(p, acc, row, column, before, tokens, staging, group);
    }
  }

  template <class Tile>
  __device__ __forceinline__ void store_staged(const GemmProblem& p,
                                               const float (&acc)[Tile::kColumns / 2], int row,
                                               int column, int64_t before, int tokens,
                                               uint8_t* staging, int group) const {
    static_assert(Tile::kBuffers == 2 && Tile::kColumns % 64 == 0);
    auto* y = static_cast<__nv_bfloat16*>(p.y_base) + before;
#pragma unroll
    for (int piece = 0; piece < Tile::kColumns / 64; ++piece) {
      // No barrier is needed here: a warp that passes the barrier below has finished reading the
      // other buffer.
      uint8_t* buffer = staging + piece % 2 * 8192;
      stage_rows<8>(acc + 32 * piece, buffer);
      sync_named(1 + group, 128);
      const int feature = column + 64 * piece, chunks = min(8, (p.features - feature) / 8);
      for (int i = threadIdx.x % 128; i < tokens * 8; i += 128) {
        const int r = i / 8, chunk = i % 8;
        if (chunk >= chunks) continue;
        const uint4 value = *reinterpret_cast<const uint4*>(buffer + swizzled_offset(r, chunk));
        *reinterpret_cast<uint4*>(y + int64_t{row + r} * p.y_stride + feature + 8 * chunk) = value;
      }
    }
    sync_named(1 + group, 128);  // before the next tile's first pieces
  }
};

const char* find_fault(const HeadGemmArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 4;
  if (a.tokens < 0 || a.heads < 1 || a.n <= 0 || a.k <= 0 || a.tokens > kMaxSize ||
      a.heads * a.n > kMaxSize || a.heads * a.k > kMaxSize) {
    return "head gemm: tokens must be at least 0, heads, n and k at least 1; tokens and heads * "
           "sizes < 2^29";
  }
  if (a.n % 8 != 0 || a.k % 8 != 0 || a.x_head_stride % 8 != 0 || a.y_head_stride % 8 != 0) {
    return "head gemm: n, k and strides must be multiples of 8";
  }
  if (a.tokens == 0) return nullptr;
  if (a.x == nullptr || a.w == nullptr || a.y == nullptr) return "head gemm: an operand is null";
  if (!has_aligned_rows(a.x, a.x_stride) || !has_aligned_rows(a.w) ||
      !has_aligned_rows(a.y, a.y_stride)) {
    return "head gemm: rows must be 16-byte aligned";
  }
  return nullptr;
}

// `depth`: length of the sums; `features`: outputs per head. The weights are [heads, features,
// depth], or [heads, depth, features] for turned tiles.
template <class Tile>
const char* launch(const HeadGemmArgs& args, int64_t features, int64_t depth, cudaStream_t stream,
                   const HeadRotation& rotation = {}) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const GemmConfig tile = plain_tile(Tile::kRows, Tile::kColumns);
  const GemmConfig config = Tile::kGroups == 1 ? two_per_sm(tile) : tile;
  const GemmArgs one{.x = args.x,
                     .w = args.w,
                     .y = args.y,
                     .m = args.tokens,
                     .n = features,
                     .k = depth,
                     .y_stride = args.y_stride};
  GemmProblem p{};
  if (!describe_problem<Tile>(p, one, config, false)) return map_refused();
  p.overlap = true;  // until earlier kernels end, the kernel reads only weights
  p.feature_tiles = static_cast<int>(divide_up(features, Tile::kColumns));
  p.token_tiles = static_cast<int>(divide_up(args.tokens, p.tile_tokens));
  p.tiles = static_cast<int>(args.heads) * p.token_tiles * p.feature_tiles;
  p.weight_rows = static_cast<int>(Tile::kTurned ? depth : features);
  p.y_head_stride = args.y_head_stride;
  // Three dimensions, so that TMA fills elements of x past the depth with zeros instead of reading
  // the next head.
  const bool encoded =
      encode_bf16_tensor<3>(&p.a, args.x, {depth, args.heads, args.tokens},
                            {args.x_head_stride, args.x_stride}, {kBoxK, 1, p.tile_tokens}) &&
      (Tile::kTurned
           ? encode_bf16_matrix(&p.b, args.w, args.heads * depth, features, features, kBoxK)
           : encode_bf16_matrix(&p.b, args.w, args.heads * features, depth, depth, Tile::kColumns));
  if (!encoded) return map_refused();
  return start_variant<Tile>(p, config, sm_count, stream, StoreHead{rotation});
}

// With few tokens, loading a head's weights takes longer than multiplying them, so narrow tiles
// spread the loads over more thread blocks. The limit of two blocks per multiprocessor gives each
// block at most one tile.
bool wants_narrow_tiles(const HeadGemmArgs& args, int64_t features) {
  return args.tokens <= 64 && args.heads * divide_up(features, 64) <= 2 * kMultiprocessors;
}
bool wants_wide_tiles(const HeadGemmArgs& args, int64_t features) {
  const int64_t tiles = divide_up(args.tokens, 128) * args.heads * divide_up(features, 256);
  return features > 128 && tiles >= kMultiprocessors;
}

}  // namespace

const char* launch_head_gemm(const HeadGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.tokens == 0) return nullptr;
  if (wants_narrow_tiles(args, args.n))
    return launch<HeadPlainTile<64, 64>>(args, args.n, args.k, stream);
  return wants_wide_tiles(args, args.n)
             ? launch<HeadPlainTile<128, 256>>(args, args.n, args.k, stream)
             : launch<HeadPlainTile<128, 128>>(args, args.n, args.k, stream);
}

const char* launch_head_input_grad(const HeadGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.tokens == 0) return nullptr;
  if (wants_narrow_tiles(args, args.k))
    return launch<HeadTurnedTile<64, 64>>(args, args.k, args.n, stream);
  return wants_wide_tiles(args, args.k)
             ? launch<HeadTurnedTile<128, 256>>(args, args.k, args.n, stream)
             : launch<HeadTurnedTile<128, 128>>(args, args.k, args.n, stream);
}

bool rotates_beside_input_grad(const HeadGemmArgs& args) {
  return args.tokens > 0 && wants_narrow_tiles(args, args.k);
}

const char* launch_head_input_grad(const HeadGemmArgs& args, const HeadRotation& rotation,
                                   cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (!rotates_beside_input_grad(args)) return "head gemm: too many tokens for a fused rotation";
  if (rotation.x.data == nullptr || rotation.y.data == nullptr || rotation.width % 2 != 0 ||
      rotation.tables.rotary_dim > rotation.width) {
    return "head gemm: a rotation needs x and y, and an even width of at least rotary_dim";
  }
  return launch<HeadTurnedTile<64, 64>>(args, args.k, args.n, stream, rotation);
}

}  // namespace slimexx::kernels

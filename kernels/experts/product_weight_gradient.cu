// dw[e, n, k] (+)= dy[r, n]^T x[r, k]: each sum is one chain over all rows of an expert.
//
// Two thread blocks form a cluster and take neighbouring features of n. They share x: each block
// loads half of its rows and multicasts them to both. Roles: warps 0 and 1 of warpgroup 0 load dy
// and x, one thread each. Two warpgroups multiply 64 features of n each and write their sums in
// pieces to shared memory. In warps 2 and 3 one thread each stores the pieces of one warpgroup by
// TMA; if the result is added to an earlier gradient, the thread first loads that gradient's
// pieces. An expert has few rows, and storing its f32 gradients takes about as long as its
// products. So a warpgroup keeps the sums of two tiles in registers: it multiplies one tile while
// the pieces of the previous tile are stored, and the tensor cores never idle. Barriers of a stage:
// full, 2 arrivals; empty, one arrival per computing warp of the cluster. Barriers of a piece's
// buffer: ready, one arrival (with the bytes of the earlier gradient); written, one arrival per
// computing warp. Named barriers: 1 + group for each warpgroup. Budget: kStages of 20 KB, kPieces
// of 8 KB for each warpgroup; 192 registers of sums. Bits: a sum is one chain over the expert's
// rows in steps of 16, with zeros after the last row. A box of dy may also hold rows of the next
// expert; these are set to zero first. The same rows of x are not cleared: if they are not finite,
// the step's gradients are not finite either, and the step is skipped. An earlier gradient is added
// to the finished sum with one rounding.
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/common/wgmma.cuh"
#include "kernels/experts/weight_gradient_pieces.cuh"

namespace slimexx::kernels {
namespace {

using namespace weight_gradient;

template <bool kIsDy>
__device__ void load_rows(const WeightGradientProblem& p, const SharedTiles& shared, int rank) {
  RingCursor<kStages> cursor;
  for (TileWalk walk(p, rank); !walk.has_ended(p); walk.advance(p, rank)) {
    const ExpertTile& at = walk.at;
    for (int block = 0; block < at.blocks(); ++block) {
      const int row = at.first_row + block * kRowsPerStage;
      uint64_t* full = shared.full + cursor.stage;
      wait(shared.empty + cursor.stage, cursor.parity ^ 1);
      arrive_expect_bytes(full, (kIsDy ? kDyBoxes : kXBoxes) * kBoxBytes);
      if constexpr (kIsDy) {
#pragma unroll
        for (int box = 0; box < kDyBoxes; ++box) {
          load_box_hinted(shared.dy(cursor.stage) + box * kBoxBytes, &p.dy, full,
                          at.n + box * kBoxColumns, row, kEvictNormal);
        }
      } else {
#pragma unroll
        for (int box = 0; box < kXBoxes; ++box) {
          load_box_multicast(shared.x(cursor.stage) + box * kBoxBytes + rank * kOwnRows * 128, &p.x,
                             full, at.k + box * kBoxColumns, row + rank * kOwnRows,
                             (1 << kCluster) - 1);
        }
      }
      cursor.advance();
    }
  }
}

// Releases a stage that this warp has read, to the loaders of both blocks, since both fill the
// stage.
__device__ __forceinline__ void release_stage(const SharedTiles& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if (lane < kCluster) arrive_at_rank(shared.empty + stage, lane);
}

// Zeroes the rows from `rows` on in a warpgroup's box of dy.
__device__ __forceinline__ void clear_rows(uint8_t* box, int rows, int group) {
  for (int i = threadIdx.x % 128; i < (kRowsPerStage - rows) * 8; i += 128) {
    *reinterpret_cast<uint4*>(box + rows * 128 + i * 16) = make_uint4(0, 0, 0, 0);
  }
  fence_shared_for_async();
  sync_named(1 + group, 128);
}

// A computing warpgroup. The products of one block of rows run while the warpgroup queues the next
// block's products and stores pieces of the previous tile's sums.
struct Multiplier {
  const WeightGradientProblem& p;
  const SharedTiles& shared;
  int group;
  RingCursor<kStages> cursor;
  RingCursor<kPieces> pieces;
  int unreleased = -1;  // stage whose products may still run

  __device__ __forceinline__ void multiply_block(const ExpertTile& at, int block,
                                                 float (&sums)[kSums]) {
    const auto stage = static_cast<int>(cursor.stage);
    wait(shared.full + stage, cursor.parity);
    uint8_t* dy = shared.dy(stage) + group * kBoxBytes;
    const int rows = at.rows - block * kRowsPerStage;
    if (rows < kRowsPerStage) clear_rows(dy, rows, group);
    const uint64_t a = describe_swizzled_tile(dy, kBoxBytes);
    const uint64_t b = describe_swizzled_tile(shared.x(stage), kBoxBytes);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRowsPerStage / 16; ++step) {
      wgmma_k16_turned(sums, a + step * kStepK16, b + step * kStepK16, block != 0 || step != 0);
    }
    wgmma_commit();
    wgmma_wait<1>();
    if (unreleased >= 0) release_stage(shared, unreleased);
    unreleased = stage;
    cursor.advance();
  }
  // Computes the sums of the tile `at` into `sums`. If `leaves`, also stores the previous tile's
  // sums, `before`, in pieces between the blocks.
  __device__ __forceinline__ void multiply_tile(const ExpertTile& at, float (&sums)[kSums],
                                                float (&before)[kSums], bool leaves) {
    const int blocks = at.blocks();
    int block = 0;
#pragma unroll
    for (int piece = 0; piece < kTilePieces; ++piece) {
      const int until = divide_up(blocks * (piece + 1), kTilePieces);
      for (; block < until; ++block) multiply_block(at, block, sums);
      if (!leaves) continue;
      if (piece == 0) pin_registers(before);  // a wait in this tile has completed these sums
      leave_piece(p, shared, group, pieces, before, piece);
    }
  }
  __device__ __forceinline__ void finish(float (&sums)[kSums]) {
    wgmma_wait<0>();
    pin_registers(sums);
#pragma unroll
    for (int piece = 0; piece < kTilePieces; ++piece) {
      leave_piece(p, shared, group, pieces, sums, piece);
    }
  }
};

__device__ void multiply_tiles(const WeightGradientProblem& p, const SharedTiles& shared, int rank,
                               int group) {
  Multiplier multiplier{p, shared, group};
  float even[kSums], odd[kSums];  // sums of every other tile
  TileWalk walk(p, rank);
  if (walk.has_ended(p)) return;
  for (bool leaves = false;; leaves = true) {
    ExpertTile at = walk.at;
    walk.advance(p, rank);
    multiplier.multiply_tile(at, even, odd, leaves);
    if (walk.has_ended(p)) return multiplier.finish(even);
    at = walk.at;
    walk.advance(p, rank);
    multiplier.multiply_tile(at, odd, even, true);
    if (walk.has_ended(p)) return multiplier.finish(odd);
  }
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(384, 1)
    weight_gradient_kernel(const __grid_constant__ WeightGradientProblem p) {
  extern __shared__ uint8_t raw[];
  const SharedTiles shared(raw);
  const auto rank = static_cast<int>(cluster_rank());
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (warp == 0 && elect_lane()) {
    for (int stage = 0; stage < kStages; ++stage) {
      init_mbarrier(shared.full + stage, 2);
      init_mbarrier(shared.empty + stage, kCluster * kComputing / 32);
    }
    for (int buffer = 0; buffer < kGroups * kPieces; ++buffer) {
      init_mbarrier(shared.ready + buffer, 1);
      init_mbarrier(shared.written + buffer, 4);
    }
    fence_mbarrier_init();
    fence_shared_for_async();
  }
  sync_cluster();
  if (warp < 4) {
    shrink_registers<40>();
    if (warp == 0 && elect_lane()) load_rows<true>(p, shared, rank);
    if (warp == 1 && elect_lane()) load_rows<false>(p, shared, rank);
    if (warp >= 2 && elect_lane()) move_pieces(p, shared, rank, warp - 2);
    __syncwarp();
  } else {
    grow_registers<232>();
    multiply_tiles(p, shared, rank, warp / 4 - 1);
    __syncwarp();
  }
  sync_cluster();  // the other block may still write to this block's memory and barriers
}

const char* find_fault(const GroupedWeightGradArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 4;
  if (a.rows.experts < 1 || a.rows.experts > kMostExperts) {
    return "grouped weight gradient: the number of experts must be from 1 to 384";
  }
  if (a.rows.rows < 0 || a.n <= 0 || a.k <= 0 || a.rows.rows > kMaxSize || a.n > kMaxSize ||
      a.k > kMaxSize) {
    return "grouped weight gradient: rows must be at least 0, n and k at least 1, all < 2^29";
  }
  if (a.n % 8 != 0 || a.k % 8 != 0) {
    return "grouped weight gradient: n and k must be multiples of 8";
  }
  if (a.dw == nullptr) return "grouped weight gradient: dw is null";
  if (a.rows.rows == 0) return nullptr;
  if (a.dy == nullptr || a.x == nullptr || a.rows.offsets == nullptr) {
    return "grouped weight gradient: an operand is null";
  }
  if (!is_aligned(a.dy, 16) || !is_aligned(a.x, 16) || !is_aligned(a.dw, 16)) {
    return "grouped weight gradient: operands must be 16-byte aligned";
  }
  return nullptr;
}

}  // namespace

const char* launch_grouped_weight_grad(const GroupedWeightGradArgs& a, cudaStream_t stream) {
  if (const char* fault = find_fault(a)) return fault;
  cudaError_t error = cudaSuccess;
  if (a.rows.rows == 0) {
    if (a.accumulate) return nullptr;
    error = cudaMemsetAsync(a.dw, 0, static_cast<size_t>(a.rows.experts * a.n * a.k) * 4, stream);
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
  }
  WeightGradientProblem p{};
  p.offsets = a.rows.offsets;
  p.n = static_cast<int>(a.n);
  p.k = static_cast<int>(a.k);
  p.n_tiles = static_cast<int>(divide_up(a.n, kCluster * kTileN));
  p.k_tiles = static_cast<int>(divide_up(a.k, kTileK));
  p.tiles = static_cast<int>(a.rows.experts) * p.n_tiles * p.k_tiles;
  p.accumulate = a.accumulate;
  if (!encode_bf16_matrix(&p.dy, a.dy, a.rows.rows, a.n, a.n, kRowsPerStage) ||
      !encode_bf16_matrix(&p.x, a.x, a.rows.rows, a.k, a.k, kOwnRows) ||
      !encode_f32_blocks(&p.dw, a.dw, a.rows.experts, a.n, a.k, 64)) {
    return "grouped weight gradient: the driver refused a tensor map";
  }
  int sm_count = 0;
  error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  error = cudaFuncSetAttribute(weight_gradient_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kSharedBytes);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  const int clusters = sm_count / kCluster;
  const int blocks = kCluster * (p.tiles < clusters ? p.tiles : clusters);
  weight_gradient_kernel<<<static_cast<unsigned>(blocks), 384, kSharedBytes, stream>>>(p);
  error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels

// dw[e, n, k] (+)= dy[r, n]^T x[r, k]: a chain over the rows of an expert, whatever their number.
//
// Two blocks of a cluster take neighbouring features of n: of x, which they share, each loads half
// into both. Roles: warps 0 and 1 of warpgroup 0 load dy and x, one thread each; two warpgroups
// multiply 64 features of n each and store them through shared memory, so that the copy engine
// writes most of a tile while the next is multiplied: an expert has few rows, and writing its f32
// gradients takes about as long as its products. Barriers of a stage: full, 2 arrivals; empty, one
// of each computing warp of the cluster. Named barriers: 1 + group, a warpgroup's own; 15, the
// start of the second one. Budget: six stages of 24 KB, two pieces of 16 KB for each warpgroup.
// Bits: a sum is one chain over the expert's rows in steps of 16, zeros behind the last: rows of
// the next expert, which a box of dy may hold, are set to zero first. (In x they may stay: as long
// as they are numbers, and a step whose gradients are not is skipped.)
#include "kernels/common/cluster.cuh"
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

constexpr int kTileN = 128, kTileK = 256, kRowsPerStage = 32;
constexpr int kBoxBytes = kRowsPerStage * 128;  // 64 columns
constexpr int kDyBoxes = kTileN / kBoxColumns, kXBoxes = kTileK / kBoxColumns;
constexpr int kStageBytes = (kDyBoxes + kXBoxes) * kBoxBytes;
constexpr int kCluster = 2, kSharedBoxes = kXBoxes / kCluster;
constexpr int kStages = 6;
// A warpgroup's sums leave in pieces of 64 rows x 64 columns, from two buffers in turn.
constexpr int kPieceBoxes = 2, kPieceColumns = kPieceBoxes * kF32BoxColumns;
constexpr int kSumBoxBytes = 64 * 128;
constexpr int kPieceBytes = kPieceBoxes * kSumBoxBytes, kSumBytes = 2 * kPieceBytes;
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + 2 * kSumBytes + 2 * kStages * 8;
static_assert(kStageBytes % 1024 == 0 && kSharedBytes <= 227 * 1024);
static_assert(kRowsPerStage <= kReadBehindExperts);
constexpr int kComputing = 256;  // threads
// The second warpgroup starts so many blocks of rows late: one leaves its sums while the other
// multiplies. Fewer than the stages, or the first would wait for ever.
constexpr int kLead = 3;
constexpr int kLeadBarrier = 15;
constexpr uint64_t kStepK16 = 16 * 128 >> 4;

struct WeightGradientProblem {
  CUtensorMap dy, x;  // boxes of kRowsPerStage x kBoxColumns
  CUtensorMap dw;     // boxes of 64 rows x kF32BoxColumns of an expert
  const int32_t* offsets;
  int n, k, n_tiles, k_tiles, tiles;  // tiles of a cluster
  bool accumulate;
};

struct ExpertTile {
  int expert, n, k;     // first feature of either side
  int first_row, rows;  // the expert's
  __device__ int blocks() const { return (rows + kRowsPerStage - 1) / kRowsPerStage; }
};

__device__ __forceinline__ ExpertTile find_tile(const WeightGradientProblem& p, int tile,
                                                int rank) {
  const int of_expert = p.n_tiles * p.k_tiles;
  const int expert = tile / of_expert, within = tile - expert * of_expert;
  const int first = p.offsets[expert];
  const int n = (within / p.k_tiles * kCluster + rank) * kTileN;
  return {expert, n, within % p.k_tiles * kTileK, first, p.offsets[expert + 1] - first};
}

struct SharedTiles {
  uint8_t* stages;  // each: the boxes of dy, then those of x
  uint8_t* sums;    // by warpgroup
  uint64_t* full;
  uint64_t* empty;

  __device__ explicit SharedTiles(uint8_t* raw) {
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    sums = stages + kStages * kStageBytes;
    full = reinterpret_cast<uint64_t*>(sums + 2 * kSumBytes);
    empty = full + kStages;
  }
  __device__ __forceinline__ uint8_t* dy(int stage) const { return stages + stage * kStageBytes; }
  __device__ __forceinline__ uint8_t* x(int stage) const {
    return dy(stage) + kDyBoxes * kBoxBytes;
  }
};

template <bool kIsDy>
__device__ void load_rows(const WeightGradientProblem& p, const SharedTiles& shared, int rank) {
  RingCursor<kStages> cursor;
  for (int tile = blockIdx.x / kCluster; tile < p.tiles; tile += gridDim.x / kCluster) {
    const ExpertTile at = find_tile(p, tile, rank);
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
        for (int own = 0; own < kSharedBoxes; ++own) {
          const int box = rank * kSharedBoxes + own;
          load_box_multicast(shared.x(cursor.stage) + box * kBoxBytes, &p.x, full,
                             at.k + box * kBoxColumns, row, (1 << kCluster) - 1);
        }
      }
      cursor.advance();
    }
  }
}

// A warp has read a stage, which the loaders of both blocks fill.
__device__ __forceinline__ void release_stage(const SharedTiles& shared, int stage) {
  const int lane = threadIdx.x % 32;
  if (lane < kCluster) arrive_at_rank(shared.empty + stage, lane);
}

// Rows from `rows` on of a warpgroup's box of dy become zero.
__device__ __forceinline__ void clear_rows(uint8_t* box, int rows, int group) {
  for (int i = threadIdx.x % 128; i < (kRowsPerStage - rows) * 8; i += 128) {
    *reinterpret_cast<uint4*>(box + rows * 128 + i * 16) = make_uint4(0, 0, 0, 0);
  }
  fence_shared_for_async();
  sync_named(1 + group, 128);
}

// `signal_block`: once its products are queued, the other warpgroup may start.
__device__ __forceinline__ void multiply_tile(const SharedTiles& shared, const ExpertTile& at,
                                              int group, int signal_block,
                                              RingCursor<kStages>& cursor,
                                              float (&sums)[kTileK / 2]) {
  const int blocks = at.blocks();
  int previous = 0;
  for (int block = 0; block < blocks; ++block) {
    const int stage = static_cast<int>(cursor.stage);
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
    if (block != 0) release_stage(shared, previous);
    if (block == signal_block) arrive_named(kLeadBarrier, kComputing);
    previous = stage;
    cursor.advance();
  }
  wgmma_wait<0>();
  pin_registers(sums);
  release_stage(shared, previous);
}

__device__ __forceinline__ void write_shared(uint32_t to, float2 value) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(value.x), "f"(value.y) : "memory");
}

// Piece `piece` of a warpgroup's sums as boxes of 64 rows x 32 columns under the swizzle. A row is
// all banks: in a column order of its own every odd row stays clear of the even one before it.
__device__ __forceinline__ void write_piece(uint32_t boxes, const float (&sums)[kTileK / 2],
                                            int piece) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const bool odd = row % 2 != 0;
  // Chunks of 16 bytes: 2 (j % 4) and the lane's upper bit, against the row.
  const uint32_t chunk = static_cast<uint32_t>((lane / 2 % 2) ^ (row % 8) ^ (odd ? 4 : 0));
  const uint32_t at = boxes + row * 128 + lane % 2 * 8;
#pragma unroll
  for (int j = 0; j < kPieceColumns / 8; ++j) {
    const float* even_rows = sums + 4 * (piece * (kPieceColumns / 8) + j);
    const float* odd_rows = sums + 4 * (piece * (kPieceColumns / 8) + (j ^ 2));
    const uint32_t to = at + j / 4 * kSumBoxBytes + ((2 * (j % 4) ^ chunk) << 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float2 value = odd ? make_float2(odd_rows[2 * i], odd_rows[2 * i + 1])
                               : make_float2(even_rows[2 * i], even_rows[2 * i + 1]);
      write_shared(to + i * 8 * 128, value);
    }
  }
}

__device__ __forceinline__ void write_zeros(uint32_t boxes) {
  for (int i = threadIdx.x % 128 * 8; i < kPieceBytes; i += 128 * 8)
    write_shared(boxes + i, float2{});
}

// By a warpgroup; write(boxes, piece) leaves a piece of its sums at `boxes`. Returns while the copy
// engine still reads the last two.
template <class Write>
__device__ __forceinline__ void store_tile(const WeightGradientProblem& p,
                                           const SharedTiles& shared, const ExpertTile& at,
                                           int group, Write&& write) {
  const bool issuer = threadIdx.x % 128 == 0;
  const int row = at.n + group * 64;
#pragma unroll
  for (int piece = 0; piece < kTileK / kPieceColumns; ++piece) {
    uint8_t* boxes = shared.sums + group * kSumBytes + piece % 2 * kPieceBytes;
    if (issuer) wait_stores_read<1>();
    __syncwarp();
    sync_named(1 + group, 128);
    write(shared_address(boxes), piece);
    fence_shared_for_async();
    sync_named(1 + group, 128);
    if (!issuer) continue;
    for (int box = 0; box < kPieceBoxes; ++box) {
      const int column = at.k + piece * kPieceColumns + box * kF32BoxColumns;
      if (row >= p.n || column >= p.k) break;
      if (p.accumulate) {
        add_box(&p.dw, boxes + box * kSumBoxBytes, column, row, at.expert);
      } else {
        store_box(&p.dw, boxes + box * kSumBoxBytes, column, row, at.expert);
      }
    }
    commit_stores();
  }
}

__device__ void multiply_tiles(const WeightGradientProblem& p, const SharedTiles& shared, int rank,
                               int group) {
  RingCursor<kStages> cursor;
  float sums[kTileK / 2];
  bool starts = true;  // the lead is taken in the first tile that has rows
  for (int tile = blockIdx.x / kCluster; tile < p.tiles; tile += gridDim.x / kCluster) {
    const ExpertTile at = find_tile(p, tile, rank);
    if (at.rows > 0) {
      if (starts && group == 1) sync_named(kLeadBarrier, kComputing);
      const int signal = starts && group == 0 ? min(kLead, at.blocks()) - 1 : -1;
      starts = false;
      multiply_tile(shared, at, group, signal, cursor, sums);
      store_tile(p, shared, at, group,
                 [&](uint32_t boxes, int piece) { write_piece(boxes, sums, piece); });
    } else if (!p.accumulate) {
      store_tile(p, shared, at, group, [](uint32_t boxes, int) { write_zeros(boxes); });
    }
    __syncwarp();
  }
  if (threadIdx.x % 128 == 0) wait_stores();
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
    fence_mbarrier_init();
    fence_shared_for_async();
  }
  sync_cluster();
  if (warp < 4) {
    shrink_registers<40>();
    if (warp == 0 && elect_lane()) load_rows<true>(p, shared, rank);
    if (warp == 1 && elect_lane()) load_rows<false>(p, shared, rank);
    __syncwarp();
  } else {
    grow_registers<232>();
    multiply_tiles(p, shared, rank, warp / 4 - 1);
    __syncwarp();
  }
  sync_cluster();  // the other block still writes to this one's memory and barriers
}

const char* find_fault(const GroupedWeightGradArgs& a) {
  constexpr int64_t kMaxSize = INT32_MAX / 4;
  if (a.rows.experts < 1 || a.rows.experts > kMostExperts) {
    return "grouped weight gradient: the number of experts must be from 1 to 384";
  }
  if (a.rows.rows < 0 || a.n <= 0 || a.k <= 0 || a.rows.rows > kMaxSize || a.n > kMaxSize ||
      a.k > kMaxSize) {
    return "grouped weight gradient: rows from 0, n and k from 1, all < 2^29";
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
      !encode_bf16_matrix(&p.x, a.x, a.rows.rows, a.k, a.k, kRowsPerStage) ||
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

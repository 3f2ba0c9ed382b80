// dw[e, n, k] (+)= dy[r, n]^T x[r, k]: a chain over the rows of an expert, whatever their number.
//
// Two blocks of a cluster take neighbouring features of n: of x, which they share, each loads half
// into both. Roles: warps 0 and 1 of warpgroup 0 load dy and x, one thread each; two warpgroups
// multiply 64 features of n each and store. Barriers of a stage: full, 2 arrivals; empty, one of
// each computing warp of the cluster. Named barriers: 1 + group, a warpgroup's own; 15, the start
// of the second one. Budget: four stages of 48 KB. Bits: a sum is one chain over the expert's rows
// in steps of 16, zeros behind the last: rows of the next expert, which a box of dy may hold, are
// set to zero first. (In x they may stay: as long as they are numbers, and a step whose gradients
// are not is skipped.)
#include "kernels/common/cluster.cuh"
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_map.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

constexpr int kTileN = 128, kTileK = 256, kRowsPerStage = 64;
constexpr int kBoxBytes = kRowsPerStage * 128;  // 64 rows x 64 columns
constexpr int kDyBoxes = kTileN / kBoxColumns, kXBoxes = kTileK / kBoxColumns;
constexpr int kStageBytes = (kDyBoxes + kXBoxes) * kBoxBytes;
constexpr int kCluster = 2, kSharedBoxes = kXBoxes / kCluster;
constexpr int kStages = 4;
constexpr int kSharedBytes = 1024 + kStages * kStageBytes + 2 * kStages * 8;
static_assert(kRowsPerStage <= kReadBehindExperts);
constexpr int kComputing = 256;  // threads
// The second warpgroup starts so many blocks of rows late and stays so: one stores while the other
// multiplies. Fewer than the stages, or the first would wait for ever.
constexpr int kLead = 3;
constexpr int kLeadBarrier = 15;
constexpr uint64_t kStepK16 = 16 * 128 >> 4;

struct WeightGradientProblem {
  CUtensorMap dy, x;  // boxes of 64 rows x 64 columns
  const int32_t* offsets;
  float* dw;
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
  uint64_t* full;
  uint64_t* empty;

  __device__ explicit SharedTiles(uint8_t* raw) {
    stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
    full = reinterpret_cast<uint64_t*>(stages + kStages * kStageBytes);
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

__device__ __forceinline__ void store_pair(const WeightGradientProblem& p, float* at,
                                           float2 value) {
  auto* to = reinterpret_cast<float2*>(at);
  if (p.accumulate) {
    const float2 old = *to;
    value = make_float2(old.x + value.x, old.y + value.y);
  }
  *to = value;
}

// `value(j, i)`: of row group i, columns 8 j and the lane's.
template <class Value>
__device__ __forceinline__ void store_tile(const WeightGradientProblem& p, const ExpertTile& at,
                                           int group, Value&& value) {
  const int row = at.n + group * 64 + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
  const int column = at.k + 2 * (threadIdx.x % 4);
  float* low = p.dw + (int64_t{at.expert} * p.n + row) * p.k + column;
  float* high = low + int64_t{8} * p.k;
  const bool has_low = row < p.n, has_high = row + 8 < p.n;
#pragma unroll
  for (int j = 0; j < kTileK / 8; ++j) {
    if (at.k + 8 * j >= p.k) break;
    if (has_low) store_pair(p, low + 8 * j, value(j, 0));
    if (has_high) store_pair(p, high + 8 * j, value(j, 1));
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
      store_tile(p, at, group, [&](int j, int i) {
        return make_float2(sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
      });
    } else if (!p.accumulate) {
      store_tile(p, at, group, [](int, int) { return make_float2(0.0f, 0.0f); });
    }
    __syncwarp();
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
  p.dw = a.dw;
  p.n = static_cast<int>(a.n);
  p.k = static_cast<int>(a.k);
  p.n_tiles = static_cast<int>(divide_up(a.n, kCluster * kTileN));
  p.k_tiles = static_cast<int>(divide_up(a.k, kTileK));
  p.tiles = static_cast<int>(a.rows.experts) * p.n_tiles * p.k_tiles;
  p.accumulate = a.accumulate;
  if (!encode_bf16_matrix(&p.dy, a.dy, a.rows.rows, a.n, a.n, kRowsPerStage) ||
      !encode_bf16_matrix(&p.x, a.x, a.rows.rows, a.k, a.k, kRowsPerStage)) {
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

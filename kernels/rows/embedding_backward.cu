// Gradient of an embedding. Positions are sorted by token, and equal tokens by position. One owner
// adds the rows of a token to its columns of the table in this order, so that each element of the
// table is one chain of additions. Short runs (few rows with one token) are added by a block for
// each tile of columns; long runs by warps that prefetch rows to shared memory.
#include "kernels/rows/row_tiles.cuh"
#include "kernels/rows/token_sort.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kLongRun = 32;
constexpr int kLaneColumns = 4;                  // columns per lane in a long run
constexpr int kLongColumns = 32 * kLaneColumns;  // columns per warp
constexpr int kGroup = 32;                       // rows per group: one index per lane
constexpr int kGroups = 4;                       // groups in flight
static_assert(kLongRun <= kGroup);

struct TableArgs {
  float* table;
  const Bf16* dy;
  const int32_t *tokens, *index;  // sorted
  int count;
  int width;
  RowTiles tiles;
  bool leaves_long_runs;
};

__device__ __forceinline__ void add_chunk(float (&sum)[kChunk], const Chunk& c) {
  float f[kChunk];
  unpack(f, c);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) sum[i] = __fadd_rn(sum[i], f[i]);
}

// Adds `rows` rows in order; lane j % 32 holds the index of row j.
template <bool kVector>
__device__ __forceinline__ void add_rows(float (&sum)[kChunk], const TableArgs& a, int index,
                                         int rows, int column) {
  constexpr int kTogether = 4;
  const int valid = a.width - column;
  for (int first = 0; first < rows; first += kTogether) {
    Chunk c[kTogether];
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int64_t row = __shfl_sync(0xffffffffu, index, (first + j) % 32);
      c[j] = first + j < rows && valid > 0
                 ? load_chunk<kVector>(a.dy + row * a.width + column, valid)
                 : Chunk{};
    }
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      if (first + j < rows) add_chunk(sum, c[j]);
    }
  }
}

// One block for every sorted position and tile of columns. Only blocks at the first position of a
// token do work.
template <bool kVector>
__global__ void __launch_bounds__(256) add_runs_kernel(const TableArgs a) {
  enter_kernel();
  const TilePlace place = find_tile(a.tiles, a.width);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int position = static_cast<int>(place.row);
  const int token = a.tokens[position];
  const int before = position > 0 ? a.tokens[position - 1] : -1;
  const bool exists = position + lane < a.count;
  bool mine = exists && a.tokens[position + lane] == token;
  int index = exists ? a.index[position + lane] : 0;
  if (before == token) return;
  int rows = __popc(__ballot_sync(0xffffffffu, mine));
  if (a.leaves_long_runs && rows >= kLongRun) return;
  const int chunk = place.begin + static_cast<int>(threadIdx.x);
  const int column = chunk < place.end ? chunk * kChunk : a.width;
  const int valid = a.width - column;
  float* table = a.table + int64_t{token} * a.width + column;
  float sum[kChunk] = {};
  if (valid > 0) load_floats<kVector>(sum, table, valid);
  for (;;) {
    add_rows<kVector>(sum, a, index, rows, column);
    if (rows < 32) break;
    position += 32;
    mine = position + lane < a.count && a.tokens[position + lane] == token;
    index = mine ? a.index[position + lane] : 0;
    rows = __popc(__ballot_sync(0xffffffffu, mine));
  }
  if (valid > 0) store_floats<kVector>(table, sum, valid);
}

// A warp's walk over one run of the sorted list: 32 positions at a time, prefetched by one group.
struct RunWalk {
  int token, position, lane;
  int next_token, next_index;

  __device__ __forceinline__ void fetch(const TableArgs& a) {
    const bool exists = position + lane < a.count;
    next_token = exists ? a.tokens[position + lane] : -1;
    next_index = exists ? a.index[position + lane] : 0;
    position += kGroup;
  }
};

__device__ __forceinline__ void copy_quad(uint2* to, const Bf16* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from)
               : "memory");
}

// Starts the copies of the next group; returns its number of rows.
__device__ __forceinline__ int start_group(const TableArgs& a, RunWalk& walk, uint2 (*group)[32],
                                           int column) {
  const int rows = __popc(__ballot_sync(0xffffffffu, walk.next_token == walk.token));
  const int index = walk.next_index;
  if (rows == kGroup) {
    walk.fetch(a);
  } else {
    walk.next_token = -1;
  }
  const auto start = [&](int j) {
    const int64_t row = __shfl_sync(0xffffffffu, index, j);
    if (column < a.width) copy_quad(&group[j][walk.lane], a.dy + row * a.width + column);
  };
  if (rows == kGroup) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) start(j);
  } else {
    for (int j = 0; j < rows; ++j) start(j);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
  return rows;
}

__device__ __forceinline__ void add_group(float (&sum)[kLaneColumns], const uint2 (*group)[32],
                                          int rows, int lane) {
  const auto add = [&](int j) {
    const uint2 pairs = group[j][lane];
    sum[0] = __fadd_rn(sum[0], widen_low(pairs.x));
    sum[1] = __fadd_rn(sum[1], widen_high(pairs.x));
    sum[2] = __fadd_rn(sum[2], widen_low(pairs.y));
    sum[3] = __fadd_rn(sum[3], widen_high(pairs.y));
  };
  if (rows == kGroup) {
#pragma unroll
    for (int j = 0; j < kGroup; ++j) add(j);
  } else {
    for (int j = 0; j < rows; ++j) add(j);
  }
}

// Block (w, t) is one warp. It adds the run of at least 32 rows that starts within positions 32w ..
// 32w + 31 (there is at most one) for the 128 columns from 128t on.
__global__ void __launch_bounds__(32) add_long_run_kernel(const TableArgs a) {
  enter_kernel();
  __shared__ uint2 ring[kGroups][kGroup][32];
  const int lane = static_cast<int>(threadIdx.x);
  const int own = static_cast<int>(blockIdx.x) * kLongRun + lane;
  const bool starts = own + kLongRun <= a.count && a.tokens[own] == a.tokens[own + kLongRun - 1] &&
                      (own == 0 || a.tokens[own - 1] != a.tokens[own]);
  const uint32_t found = __ballot_sync(0xffffffffu, starts);
  if (found == 0) return;
  const int position = static_cast<int>(blockIdx.x) * kLongRun + __ffs(static_cast<int>(found)) - 1;
  RunWalk walk{a.tokens[position], position, lane, 0, 0};
  walk.fetch(a);
  const int column = static_cast<int>(blockIdx.y) * kLongColumns + lane * kLaneColumns;
  auto* table = reinterpret_cast<float4*>(a.table + int64_t{walk.token} * a.width + column);
  float4 old{};
  if (column < a.width) old = *table;
  int rows[kGroups];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) rows[g] = start_group(a, walk, ring[g], column);
  float sum[kLaneColumns] = {old.x, old.y, old.z, old.w};
  for (bool more = true; more;) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kGroups - 1) : "memory");
      add_group(sum, ring[g], rows[g], lane);
      more = more && rows[g] == kGroup;
      rows[g] = start_group(a, walk, ring[g], column);
    }
  }
  if (column < a.width) *table = make_float4(sum[0], sum[1], sum[2], sum[3]);
}

}  // namespace

size_t embedding_backward_workspace(int64_t count, int64_t vocabulary) {
  return cut_token_workspace(nullptr, count, vocabulary).bytes;
}

cudaError_t embedding_backward(float* dtable, const void* dy, const int32_t* tokens, int64_t count,
                               int64_t width, int64_t vocabulary, void* workspace,
                               cudaStream_t stream) {
  if (count < 0 || count > INT_MAX - 64 || width < 0 || width > INT_MAX / 2 ||
      vocabulary > INT_MAX) {
    return cudaErrorInvalidValue;
  }
  if (count == 0 || width == 0) return cudaSuccess;
  const SortedTokens sorted = cut_token_workspace(workspace, count, vocabulary);
  cudaError_t error = sort_tokens(sorted, tokens, count, vocabulary, stream);
  if (error != cudaSuccess) return error;
  const bool vector = width % kChunk == 0 && has_aligned_rows(dtable) && has_aligned_rows(dy);
  const TableArgs args{dtable,
                       static_cast<const Bf16*>(dy),
                       sorted.tokens,
                       sorted.index,
                       static_cast<int>(count),
                       static_cast<int>(width),
                       choose_row_tiles(width, 1),
                       vector};
  if (!fits_grid(count, args.tiles)) return cudaErrorInvalidValue;
  error = launch(vector ? add_runs_kernel<true> : add_runs_kernel<false>,
                 grid_of(count * args.tiles.tiles), args.tiles.threads, stream, args);
  if (error != cudaSuccess || !vector) return error;
  const dim3 grid(static_cast<unsigned>(divide_up(count, kLongRun)),
                  static_cast<unsigned>(divide_up(width, kLongColumns)));
  return launch(add_long_run_kernel, grid, 32, stream, args);
}

}  // namespace slimexx::kernels

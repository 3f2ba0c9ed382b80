// Gradient of an embedding: (token, i) pairs are sorted by token, stable, so that equal tokens
// stand together with ascending i; a warp then adds one token's rows in that order onto 256 columns
// of the table. Each element of the table is one chain of additions.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/rows/launch.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kWarps = 4;
constexpr int kLaneColumns = 4;
constexpr int kColumns = 32 * kLaneColumns;  // of one warp

struct Workspace {
  int32_t *index, *sorted_tokens, *sorted_index;
  void* sort;
  size_t sort_bytes, bytes;
};

int count_token_bits(int64_t vocabulary) {
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < vocabulary) ++bits;
  return bits;
}

cudaError_t sort_pairs(const Workspace& w, const int32_t* tokens, int64_t count, int64_t vocabulary,
                       size_t& bytes, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(w.sort, bytes, tokens, w.sorted_tokens, w.index,
                                         w.sorted_index, static_cast<int>(count), 0,
                                         count_token_bits(vocabulary), stream);
}

Workspace cut_workspace(void* base, int64_t count, int64_t vocabulary) {
  Workspace w{};
  const size_t list = static_cast<size_t>(divide_up(count * int64_t{sizeof(int32_t)}, 256) * 256);
  sort_pairs(w, nullptr, count, vocabulary, w.sort_bytes, nullptr);
  auto* bytes = static_cast<char*>(base);
  w.index = reinterpret_cast<int32_t*>(bytes);
  w.sorted_tokens = reinterpret_cast<int32_t*>(bytes + list);
  w.sorted_index = reinterpret_cast<int32_t*>(bytes + 2 * list);
  w.sort = bytes + 3 * list;
  w.bytes = 3 * list + w.sort_bytes;
  return w;
}

__global__ void __launch_bounds__(256) fill_index_kernel(int32_t* index, int count) {
  enter_kernel();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) index[i] = i;
}

struct TableArgs {
  float* table;
  const Bf16* dy;
  const int32_t *tokens, *index;  // sorted
  int count;
  int64_t width;
};

struct Quad {
  uint2 pairs;
};

template <bool kVector>
__device__ __forceinline__ Quad load_quad(const Bf16* p, int valid) {
  if constexpr (kVector) return {*reinterpret_cast<const uint2*>(p)};
  const auto* element = reinterpret_cast<const uint16_t*>(p);
  uint32_t pair[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) {
    if (i < valid) pair[i / 2] |= uint32_t{element[i]} << (i % 2 * 16);
  }
  return {{pair[0], pair[1]}};
}

__device__ __forceinline__ void add_quad(float (&sum)[kLaneColumns], const Quad& q) {
  sum[0] = __fadd_rn(sum[0], __uint_as_float(q.pairs.x << 16));
  sum[1] = __fadd_rn(sum[1], __uint_as_float(q.pairs.x & 0xffff0000u));
  sum[2] = __fadd_rn(sum[2], __uint_as_float(q.pairs.y << 16));
  sum[3] = __fadd_rn(sum[3], __uint_as_float(q.pairs.y & 0xffff0000u));
}

// Adds rows index[first .. first + kRows), which lanes hold one each, in order; all of them are
// under way before the first is added.
template <int kRows, bool kVector>
__device__ __forceinline__ void add_rows(float (&sum)[kLaneColumns], const TableArgs& a,
                                         int lane_index, int first, int64_t column, int valid) {
  Quad quad[kRows];
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    const int64_t i = __shfl_sync(0xffffffffu, lane_index, first + j);
    if (valid > 0) quad[j] = load_quad<kVector>(a.dy + i * a.width + column, valid);
  }
#pragma unroll
  for (int j = 0; j < kRows; ++j) {
    if (valid > 0) add_quad(sum, quad[j]);
  }
}

// Blocks of the first position of each token work, the others leave.
template <bool kVector>
__global__ void __launch_bounds__(kWarps * 32) add_to_table_kernel(const TableArgs a) {
  enter_kernel();
  const int lane = threadIdx.x % 32;
  int position = static_cast<int>(blockIdx.x);
  const int token = a.tokens[position];
  if (position > 0 && a.tokens[position - 1] == token) return;
  const int64_t column =
      (int64_t{blockIdx.y} * kWarps + threadIdx.x / 32) * kColumns + lane * kLaneColumns;
  const auto valid =
      static_cast<int>(max(min(a.width - column, int64_t{kLaneColumns}), int64_t{0}));
  float* table = a.table + token * a.width + column;
  float sum[kLaneColumns] = {};
  if (kVector && valid > 0) {
    const float4 old = *reinterpret_cast<const float4*>(table);
    sum[0] = old.x, sum[1] = old.y, sum[2] = old.z, sum[3] = old.w;
  } else {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      if (i < valid) sum[i] = table[i];
    }
  }
  int rows = 32;
  for (; rows == 32; position += 32) {
    const bool exists = position + lane < a.count;
    const bool mine = exists && a.tokens[position + lane] == token;
    const int index = exists ? a.index[position + lane] : 0;
    rows = __popc(__ballot_sync(0xffffffffu, mine));
    if (rows == 32) {
      add_rows<32, kVector>(sum, a, index, 0, column, valid);
      continue;
    }
    int first = 0;
    for (; first + 8 <= rows; first += 8) add_rows<8, kVector>(sum, a, index, first, column, valid);
    for (; first < rows; ++first) add_rows<1, kVector>(sum, a, index, first, column, valid);
  }
  if (kVector && valid > 0) {
    *reinterpret_cast<float4*>(table) = make_float4(sum[0], sum[1], sum[2], sum[3]);
  } else {
#pragma unroll
    for (int i = 0; i < kLaneColumns; ++i) {
      if (i < valid) table[i] = sum[i];
    }
  }
}

}  // namespace

size_t embedding_backward_workspace(int64_t count, int64_t vocabulary) {
  return cut_workspace(nullptr, count, vocabulary).bytes;
}

cudaError_t embedding_backward(float* dtable, const void* dy, const int32_t* tokens, int64_t count,
                               int64_t width, int64_t vocabulary, void* workspace,
                               cudaStream_t stream) {
  if (count < 0 || count > INT_MAX - 64 || width < 0 || vocabulary > INT_MAX) {
    return cudaErrorInvalidValue;
  }
  if (count == 0 || width == 0) return cudaSuccess;
  const Workspace w = cut_workspace(workspace, count, vocabulary);
  cudaError_t error = launch(fill_index_kernel, grid_of(divide_up(count, 256)), 256, stream,
                             w.index, static_cast<int>(count));
  if (error != cudaSuccess) return error;
  size_t bytes = w.sort_bytes;
  error = sort_pairs(w, tokens, count, vocabulary, bytes, stream);
  if (error != cudaSuccess) return error;
  const TableArgs args{dtable,         static_cast<const Bf16*>(dy), w.sorted_tokens,
                       w.sorted_index, static_cast<int>(count),      width};
  const bool vector = width % kChunk == 0 && is_aligned(dtable) && is_aligned(dy);
  const dim3 grid(static_cast<unsigned>(count),
                  static_cast<unsigned>(divide_up(width, kWarps * kColumns)));
  return launch(vector ? add_to_table_kernel<true> : add_to_table_kernel<false>, grid, kWarps * 32,
                stream, args);
}

}  // namespace slimexx::kernels

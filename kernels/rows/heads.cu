// Copies columns between heads of different widths, sums them over heads, rotates them, and puts
// rows into pages. For latent attention: applies RMSNorm and rotation to its rows and puts them
// into pages. A thread moves eight elements or rotates one pair.
#include <algorithm>

#include "kernels/float8/cached_rows.cuh"
#include "kernels/rows/norm_parts.cuh"
#include "kernels/rows/rotate.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kThreads = 256;

__device__ __forceinline__ int64_t thread_index() {
  return static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__global__ void __launch_bounds__(kThreads)
    copy_columns(HeadRows y, HeadRows x, int64_t count, int heads, int chunks) {
  enter_kernel();
  const int64_t i = thread_index();
  if (i >= count) return;
  const int64_t row = i / chunks, token = row / heads, head = row - token * heads;
  const int64_t at = (i - row * chunks) * kChunk;
  const Chunk chunk = load_chunk<true>(element_at(x, token, head, at), kChunk);
  store_chunk<true>(element_at(y, token, head, at), chunk, kChunk);
}

__global__ void __launch_bounds__(kThreads)
    sum_columns(Bf16* y, int64_t y_stride, HeadRows x, int64_t count, int heads, int chunks) {
  enter_kernel();
  const int64_t i = thread_index();
  if (i >= count) return;
  const int64_t token = i / chunks, at = (i - token * chunks) * kChunk;
  float sum[kChunk];
  unpack(sum, load_chunk<true>(element_at(x, token, 0, at), kChunk));
#pragma unroll 4
  for (int head = 1; head < heads; ++head) {
    float own[kChunk];
    unpack(own, load_chunk<true>(element_at(x, token, head, at), kChunk));
#pragma unroll
    for (int e = 0; e < kChunk; ++e) sum[e] = __fadd_rn(sum[e], own[e]);
  }
  store_chunk<true>(y + token * y_stride + at, pack(sum), kChunk);
}

template <bool kBack>
__global__ void __launch_bounds__(kThreads)
    rotate_pairs(HeadRows y, HeadRows x, RotaryTables t, int64_t count, int heads, int pairs) {
  enter_layer_kernel();
  const int64_t i = thread_index();
  if (i >= count) return;
  const int64_t row = i / pairs, token = row / heads, head = row - token * heads;
  rotate_pair<kBack>(element_at(y, token, head, 0), element_at(x, token, head, 0), t, token,
                     static_cast<int>(i - row * pairs));
}

struct LatentArgs {
  Bf16* y;
  LatentPages pages;
  const Bf16 *x, *norm;
  RotaryTables rotary;
  int64_t y_stride, x_stride;
  int tokens, rank, rotary_width;
  float inverse_width, eps;
  Bf16* query_y;
  const Bf16 *query_x, *query_norm;
  int64_t query_y_stride, query_x_stride;
  int query_rank;
  float query_inverse_width;
};

// Threads beyond the row's width add zeros to its sum.
__device__ __forceinline__ void norm_query_row(const LatentArgs& a, int64_t token,
                                               float (&shared)[1][kMaxWarps]) {
  const auto x = load_row<1, true>(a.query_x + token * a.query_x_stride, a.query_rank);
  const auto w = load_row<1, true>(a.query_norm, a.query_rank);
  float sum[1] = {sum_of_squares(x)};
  sum_over_block(sum, shared);
  store_normalised<1, true>(a.query_y + token * a.query_y_stride, x, w,
                            inverse_rms(sum[0], a.query_inverse_width, a.eps), a.query_rank);
}

// One thread block per token: its first warps apply RMSNorm to the latent row, its last warp
// rotates the key and adds zeros to the norm's sum. If query rows are normed too, one more block
// per token does that.
template <bool kRoundF8>
__global__ void __launch_bounds__(kMaxThreads) latent_rows(const __grid_constant__ LatentArgs a) {
  enter_layer_kernel();
  __shared__ float shared[1][kMaxWarps];
  const int64_t token = blockIdx.x;
  if (token >= a.tokens) return norm_query_row(a, token - a.tokens, shared);
  const Bf16* x = a.x + token * a.x_stride;
  Bf16* y = a.y + token * a.y_stride;
  uint8_t* page = a.pages.row_of(token);
  const int begin = chunk_begin(0);
  const auto row = load_row<1, true>(x, a.rank);
  float sum[1] = {sum_of_squares(row)};
  sum_over_block(sum, shared);
  const float r = inverse_rms(sum[0], a.inverse_width, a.eps);
  Chunk chunk{};
  if (begin < a.rank) {
    float value[kChunk], weight[kChunk];
    unpack(value, row.chunk[0]);
    unpack(weight, load_chunk<true>(a.norm + begin, kChunk));
#pragma unroll
    for (int i = 0; i < kChunk; ++i) value[i] = __fmul_rn(weight[i], __fmul_rn(value[i], r));
    chunk = pack(value);
  }
  if constexpr (kRoundF8) {
    chunk = round_latent_chunk(chunk, begin, a.rank, page, a.pages);
  } else if (page != nullptr && begin < a.rank) {
    store_chunk<true>(reinterpret_cast<Bf16*>(page) + begin, chunk, kChunk);
  }
  if (begin < a.rank) store_chunk<true>(y + begin, chunk, kChunk);
  const int pair = static_cast<int>(threadIdx.x) - (static_cast<int>(blockDim.x) - 32);
  if (pair < 0 || 2 * pair >= a.rotary_width) return;
  rotate_pair<false>(y + a.rank, x + a.rank, a.rotary, token, pair);
  if (page != nullptr)
    rotate_pair<false>(a.pages.rotary_of(page), x + a.rank, a.rotary, token, pair);
}

__global__ void __launch_bounds__(kThreads)
    put_rows(Bf16* pages, const Bf16* x, int64_t x_stride, const int32_t* slots, int64_t count,
             int chunks) {
  enter_kernel();
  const int64_t i = thread_index();
  if (i >= count) return;
  const int64_t row = i / chunks, at = (i - row * chunks) * kChunk;
  const int64_t slot = slots[row];
  if (slot < 0) return;
  store_chunk<true>(pages + slot * chunks * kChunk + at,
                    load_chunk<true>(x + row * x_stride + at, kChunk), kChunk);
}

bool is_served(const HeadRows& x) {
  return has_aligned_rows(x.data, x.token_stride) && x.head_stride % kChunk == 0;
}

template <class... Parameters>
cudaError_t run(void (*kernel)(Parameters...), int64_t count, cudaStream_t stream,
                Parameters... arguments) {
  if (count == 0) return cudaSuccess;
  const int64_t blocks = divide_up(count, int64_t{kThreads});
  if (blocks > INT_MAX) return cudaErrorInvalidValue;
  return launch(kernel, grid_of(blocks), kThreads, stream, arguments...);
}

}  // namespace

cudaError_t copy_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                              int64_t width, cudaStream_t stream) {
  if (!is_served(y) || !is_served(x) || width % kChunk != 0) return cudaErrorInvalidValue;
  const int64_t chunks = width / kChunk, count = tokens * heads * chunks;
  return run(copy_columns, count, stream, y, x, count, static_cast<int>(heads),
             static_cast<int>(chunks));
}

cudaError_t sum_head_columns(void* y, int64_t y_stride, const HeadRows& x, int64_t tokens,
                             int64_t heads, int64_t width, cudaStream_t stream) {
  if (!has_aligned_rows(y, y_stride) || !is_served(x) || width % kChunk != 0 || heads < 1)
    return cudaErrorInvalidValue;
  const int64_t chunks = width / kChunk, count = tokens * chunks;
  return run(sum_columns, count, stream, static_cast<Bf16*>(y), y_stride, x, count,
             static_cast<int>(heads), static_cast<int>(chunks));
}

cudaError_t rotate_head_columns(const HeadRows& y, const HeadRows& x, int64_t tokens, int64_t heads,
                                int64_t width, const RotaryTables& tables, bool inverse,
                                cudaStream_t stream) {
  if (width % 2 != 0 || tables.rotary_dim > width) return cudaErrorInvalidValue;
  const int64_t pairs = width / 2, count = tokens * heads * pairs;
  return run(inverse ? rotate_pairs<true> : rotate_pairs<false>, count, stream, y, x, tables, count,
             static_cast<int>(heads), static_cast<int>(pairs));
}

cudaError_t latent_rows_forward(const LatentRows& rows, const RotaryTables& tables, float eps,
                                cudaStream_t stream) {
  if (rows.tokens == 0) return cudaSuccess;
  const RowLayout layout = choose_row_layout(rows.rank);
  const bool is_served = rows.rank % kChunk == 0 && rows.rotary_width % kChunk == 0 &&
                         rows.rotary_width <= 64 && tables.rotary_dim <= rows.rotary_width &&
                         layout.chunks_per_thread == 1 && layout.threads + 32 <= kMaxThreads &&
                         has_aligned_rows(rows.y, rows.y_stride) && has_aligned_rows(rows.norm) &&
                         has_aligned_rows(rows.x, rows.x_stride) && has_aligned_rows(rows.pages) &&
                         rows.tokens <= INT_MAX / 2;
  const bool has_queries = rows.query_rank > 0;
  const bool serves_queries = norms_latent_queries(rows.query_rank) &&
                              has_aligned_rows(rows.query_y, rows.query_y_stride) &&
                              has_aligned_rows(rows.query_x, rows.query_x_stride) &&
                              has_aligned_rows(rows.query_norm);
  if (!is_served || (has_queries && !serves_queries)) return cudaErrorInvalidValue;
  const LatentArgs args{
      static_cast<Bf16*>(rows.y),
      describe_pages(rows.pages, rows.slots, rows.rank, rows.rotary_width, rows.round_f8),
      static_cast<const Bf16*>(rows.x),
      static_cast<const Bf16*>(rows.norm),
      tables,
      rows.y_stride,
      rows.x_stride,
      static_cast<int>(rows.tokens),
      static_cast<int>(rows.rank),
      static_cast<int>(rows.rotary_width),
      1.0f / static_cast<float>(rows.rank),
      eps,
      static_cast<Bf16*>(rows.query_y),
      static_cast<const Bf16*>(rows.query_x),
      static_cast<const Bf16*>(rows.query_norm),
      rows.query_y_stride,
      rows.query_x_stride,
      static_cast<int>(rows.query_rank),
      has_queries ? 1.0f / static_cast<float>(rows.query_rank) : 0.0f};
  const int query_threads = has_queries ? choose_row_layout(rows.query_rank).threads : 0;
  return launch(rows.round_f8 ? latent_rows<true> : latent_rows<false>,
                grid_of(rows.tokens * (has_queries ? 2 : 1)),
                std::max(layout.threads + 32, query_threads), stream, args);
}

cudaError_t put_rows_in_pages(void* pages, const void* x, int64_t x_stride, const int32_t* slots,
                              int64_t rows, int64_t width, cudaStream_t stream) {
  if (!has_aligned_rows(pages) || !has_aligned_rows(x, x_stride) || width % kChunk != 0)
    return cudaErrorInvalidValue;
  const int64_t chunks = width / kChunk, count = rows * chunks;
  return run(put_rows, count, stream, static_cast<Bf16*>(pages), static_cast<const Bf16*>(x),
             x_stride, slots, count, static_cast<int>(chunks));
}

}  // namespace slimexx::kernels

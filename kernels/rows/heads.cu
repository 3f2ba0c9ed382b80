// Columns of heads: copied between heads of different widths, added over heads, rotated, and rows
// to their pages. A thread moves eight elements, or rotates one pair.
#include "kernels/rows/launch.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kThreads = 256;

// `at` elements into the head's part.
__device__ __forceinline__ Bf16* element_at(const HeadRows& x, int64_t token, int64_t head,
                                            int64_t at) {
  return static_cast<Bf16*>(x.data) + token * x.token_stride + head * x.head_stride + at;
}

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

// The arithmetic of head_lanes.cuh: the first product of each sum is not rounded.
template <bool kBack>
__global__ void __launch_bounds__(kThreads)
    rotate_pairs(HeadRows x, RotaryTables t, int64_t count, int heads, int pairs) {
  enter_kernel();
  const int64_t i = thread_index();
  if (i >= count) return;
  const int64_t row = i / pairs, token = row / heads, head = row - token * heads;
  const int64_t pair = i - row * pairs;
  const int64_t angle = static_cast<int64_t>(t.positions[token]) * pairs + pair;
  const float c = t.cos[angle], s = kBack ? -t.sin[angle] : t.sin[angle];
  Bf16* first = element_at(x, token, head, t.interleaved ? 2 * pair : pair);
  Bf16* second = first + (t.interleaved ? 1 : pairs);
  const float a = __bfloat162float(*first), b = __bfloat162float(*second);
  *first = __float2bfloat16_rn(__fmaf_rn(a, c, -__fmul_rn(b, s)));
  *second = __float2bfloat16_rn(__fmaf_rn(b, c, __fmul_rn(a, s)));
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

cudaError_t rotate_heads(const HeadRows& x, int64_t tokens, int64_t heads,
                         const RotaryTables& tables, bool inverse, cudaStream_t stream) {
  const int64_t pairs = tables.rotary_dim / 2, count = tokens * heads * pairs;
  return run(inverse ? rotate_pairs<true> : rotate_pairs<false>, count, stream, x, tables, count,
             static_cast<int>(heads), static_cast<int>(pairs));
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

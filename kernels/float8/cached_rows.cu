// Rounds latent rows and index keys through FP8 in place, and stores them in pages.
#include "kernels/float8/cached_rows.cuh"

#include "kernels/rows/row_sum.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

// One thread block per token; its last warp copies the rotary part to the page.
__global__ void __launch_bounds__(kMaxThreads)
    round_rows(Bf16* rows, int64_t stride, int rank, int rotary_width,
               const __grid_constant__ LatentPages pages) {
  enter_layer_kernel();
  const int64_t token = blockIdx.x;
  Bf16* y = rows + token * stride;
  uint8_t* page = pages.row_of(token);
  const int begin = chunk_begin(0);
  const Chunk chunk =
      round_latent_chunk(load_row<1, true>(y, rank).chunk[0], begin, rank, page, pages);
  if (begin < rank) store_chunk<true>(y + begin, chunk, kChunk);
  const int at = (static_cast<int>(threadIdx.x) - (static_cast<int>(blockDim.x) - 32)) * kChunk;
  if (page == nullptr || at < 0 || at >= rotary_width) return;
  store_chunk<true>(pages.rotary_of(page) + at, load_chunk<true>(y + rank + at, kChunk), kChunk);
}

constexpr int kKeyThreads = 128, kKeysPerBlock = kKeyThreads / kGroupLanes;
static_assert(kMostIndexHeadDim == kGroupLanes * kChunk);

__global__ void __launch_bounds__(kKeyThreads)
    round_keys(Bf16* keys, int64_t stride, int64_t tokens, int head_dim, uint8_t* pages,
               uint16_t* scales, const int32_t* slots) {
  enter_layer_kernel();
  const int64_t token = int64_t{blockIdx.x} * kKeysPerBlock + threadIdx.x / kGroupLanes;
  const int begin = static_cast<int>(threadIdx.x) % kGroupLanes * kChunk;
  const bool exists = token < tokens && begin < head_dim;
  Bf16* key = keys + token * stride + begin;
  const F8Chunk rounded = round_to_f8(exists ? load_chunk<true>(key, kChunk) : Chunk{});
  if (!exists) return;
  store_chunk<true>(key, rounded.rounded, kChunk);
  const int64_t slot = pages != nullptr ? slots[token] : -1;
  if (slot < 0) return;
  *reinterpret_cast<uint2*>(pages + slot * head_dim + begin) = rounded.bytes;
  if (begin == 0) scales[slot] = static_cast<uint16_t>(__float_as_uint(rounded.scale) >> 16);
}

}  // namespace

cudaError_t round_latent_rows(void* y, int64_t y_stride, int64_t tokens, int64_t rank,
                              int64_t rotary_width, const F8Pages& pages, cudaStream_t stream) {
  if (tokens == 0) return cudaSuccess;
  const RowLayout layout = choose_row_layout(rank);
  const bool is_served = rank > 0 && rank % kChunk == 0 && rotary_width % kChunk == 0 &&
                         rotary_width <= 64 && layout.chunks_per_thread == 1 &&
                         layout.threads + 32 <= kMaxThreads && has_aligned_rows(y, y_stride) &&
                         has_aligned_rows(pages.rows) && tokens <= INT_MAX;
  if (!is_served) return cudaErrorInvalidValue;
  return launch(round_rows, grid_of(tokens), layout.threads + 32, stream, static_cast<Bf16*>(y),
                y_stride, static_cast<int>(rank), static_cast<int>(rotary_width),
                describe_pages(pages.rows, pages.slots, rank, rotary_width, true));
}

cudaError_t round_index_keys(void* keys, int64_t stride, int64_t tokens, int64_t head_dim,
                             const F8Pages& pages, cudaStream_t stream) {
  if (tokens == 0) return cudaSuccess;
  const bool is_served = head_dim > 0 && head_dim % kChunk == 0 && head_dim <= kMostIndexHeadDim &&
                         has_aligned_rows(keys, stride) && is_aligned(pages.rows, 8) &&
                         (pages.rows == nullptr || pages.scales != nullptr) && tokens <= INT_MAX;
  if (!is_served) return cudaErrorInvalidValue;
  return launch(round_keys, grid_of(divide_up(tokens, int64_t{kKeysPerBlock})), kKeyThreads, stream,
                static_cast<Bf16*>(keys), stride, tokens, static_cast<int>(head_dim),
                static_cast<uint8_t*>(pages.rows), static_cast<uint16_t*>(pages.scales),
                pages.slots);
}

}  // namespace slimexx::kernels

// Copies rows, gathers rows by index (also from a shard of a table), and adds rows to indexed rows.
// A row is cut into tiles, one thread block per tile.
#include "kernels/rows/row_tiles.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kChunks = 2;  // per thread

struct IndexedArgs {
  Bf16* out;
  const Bf16* in;
  const int32_t* rows;
  int64_t out_stride, in_stride;
  RowTiles tiles;
  int width;
  int64_t first_row = 0, num_rows = 0;  // of a shard
};

enum class Indexed {
  kCopy,     // row i of `in` is copied to row i
  kGather,   // row rows[i] of `in` is copied to row i
  kShard,    // row rows[i] - first_row of `in`, or zeros if out of range, is copied to row i
  kScatter,  // row i of `in` is added to row rows[i] of `out`
};

template <bool kVector, Indexed kWork>
__global__ void __launch_bounds__(256) indexed_rows_kernel(const IndexedArgs a) {
  enter_kernel();
  constexpr bool kScatter = kWork == Indexed::kScatter;
  const TilePlace place = find_tile(a.tiles, a.width);
  int64_t other = place.row;
  if constexpr (kWork != Indexed::kCopy) other = a.rows[place.row];
  bool exists = true;
  if constexpr (kWork == Indexed::kShard) {
    other -= a.first_row;
    exists = other >= 0 && other < a.num_rows;
  }
  Bf16* out = a.out + (kScatter ? other : place.row) * a.out_stride;
  const Bf16* in = a.in + (kScatter ? place.row : other) * a.in_stride;
  Chunk from[kChunks], to[kChunks];
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    from[j] = exists ? load_chunk<kVector>(in + at, a.width - at) : Chunk{};
    if constexpr (kScatter) to[j] = load_chunk<kVector>(out + at, a.width - at);
  }
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    if constexpr (kScatter) {
      float sum[kChunk], added[kChunk];
      unpack(sum, to[j]);
      unpack(added, from[j]);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sum[i] = __fadd_rn(sum[i], added[i]);
      from[j] = pack(sum);
    }
    store_chunk<kVector>(out + at, from[j], a.width - at);
  }
}

template <Indexed kWork>
cudaError_t run(IndexedArgs args, int64_t count, int64_t width, cudaStream_t stream) {
  if (width < 0 || width > INT_MAX / 2) return cudaErrorInvalidValue;
  if (count == 0 || width == 0) return cudaSuccess;
  args.tiles = choose_row_tiles(width, kChunks);
  args.width = static_cast<int>(width);
  if (!fits_grid(count, args.tiles)) return cudaErrorInvalidValue;
  const bool vector = width % kChunk == 0 && has_aligned_rows(args.out, args.out_stride) &&
                      has_aligned_rows(args.in, args.in_stride);
  auto* kernel = vector ? indexed_rows_kernel<true, kWork> : indexed_rows_kernel<false, kWork>;
  return launch(kernel, grid_of(count * args.tiles.tiles), args.tiles.threads, stream, args);
}

}  // namespace

cudaError_t copy_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride, int64_t count,
                      int64_t width, cudaStream_t stream) {
  const IndexedArgs args{
      static_cast<Bf16*>(y), static_cast<const Bf16*>(x), nullptr, y_stride, x_stride, {}, 0};
  return run<Indexed::kCopy>(args, count, width, stream);
}

cudaError_t gather_rows(void* y, int64_t y_stride, const void* x, int64_t x_stride,
                        const int32_t* rows, int64_t count, int64_t width, cudaStream_t stream) {
  const IndexedArgs args{
      static_cast<Bf16*>(y), static_cast<const Bf16*>(x), rows, y_stride, x_stride, {}, 0};
  return run<Indexed::kGather>(args, count, width, stream);
}

cudaError_t embedding_shard(void* y, int64_t y_stride, const void* shard, int64_t shard_stride,
                            const VocabularyShard& vocabulary, const int32_t* tokens, int64_t count,
                            int64_t width, cudaStream_t stream) {
  const IndexedArgs args{static_cast<Bf16*>(y),
                         static_cast<const Bf16*>(shard),
                         tokens,
                         y_stride,
                         shard_stride,
                         {},
                         0,
                         vocabulary.first,
                         vocabulary.rows};
  return run<Indexed::kShard>(args, count, width, stream);
}

cudaError_t scatter_add_rows(void* dx, int64_t dx_stride, const void* dy, int64_t dy_stride,
                             const int32_t* rows, int64_t count, int64_t width,
                             cudaStream_t stream) {
  const IndexedArgs args{
      static_cast<Bf16*>(dx), static_cast<const Bf16*>(dy), rows, dx_stride, dy_stride, {}, 0};
  return run<Indexed::kScatter>(args, count, width, stream);
}

}  // namespace slimexx::kernels

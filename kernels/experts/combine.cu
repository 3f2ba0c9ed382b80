// The weighted sum of a token's routed rows, alone or added to the residual stream and normed.
#include "kernels/rows/norm_parts.cuh"
#include "kernels/rows/row_tiles.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

struct RoutedSum {
  const Bf16* in;
  const float* weights;
  const Bf16* shared;
  const int32_t* rows;
  int width, top_k;
};

// Elements [at, at + kChunk) of a token's sum. kFlight rows are loaded at a time.
template <bool kWeighted, int kFlight>
__device__ __forceinline__ Chunk sum_chunk(const RoutedSum& a, int64_t token, int at) {
  const int64_t first = token * a.top_k;
  float sum[kChunk] = {};
  for (int j = 0; j < a.top_k; j += kFlight) {
    Chunk in[kFlight];
    float weight[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if (j + i >= a.top_k) break;
      in[i] = load_chunk<true>(a.in + int64_t{a.rows[first + j + i]} * a.width + at, kChunk);
      weight[i] = kWeighted ? a.weights[first + j + i] : 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kFlight; ++i) {
      if (j + i >= a.top_k) break;
      float values[kChunk];
      unpack(values, in[i]);
#pragma unroll
      for (int c = 0; c < kChunk; ++c) sum[c] = __fmaf_rn(weight[i], values[c], sum[c]);
    }
  }
  if (a.shared != nullptr) {
    float values[kChunk];
    unpack(values, load_chunk<true>(a.shared + token * a.width + at, kChunk));
#pragma unroll
    for (int c = 0; c < kChunk; ++c) sum[c] = __fadd_rn(sum[c], values[c]);
  }
  return pack(sum);
}

// A thread has one chunk of a token.
template <bool kWeighted>
__global__ void __launch_bounds__(256)
    combine_kernel(const RoutedSum sum, const RowTiles tiles, Bf16* y) {
  enter_layer_kernel();
  const TilePlace place = find_tile(tiles, sum.width);
  const int chunk = place.begin + static_cast<int>(threadIdx.x);
  if (chunk >= place.end) return;
  const int at = chunk * kChunk;
  store_chunk<true>(y + place.row * sum.width + at, sum_chunk<kWeighted, 4>(sum, place.row, at),
                    kChunk);
}

struct AddNormArgs {
  Bf16 *y, *x_sum;
  const Bf16 *x, *w;
  float inverse_width, eps;
};

// One thread block per token, as in add_rms_norm_forward; the branch is the token's sum.
template <int kChunks>
__global__ void __launch_bounds__(kMaxThreads)
    combine_add_norm_kernel(const RoutedSum sum, const AddNormArgs a) {
  enter_layer_kernel();
  __shared__ float shared[1][kMaxWarps];
  const int64_t token = blockIdx.x, row = token * sum.width;
  auto x = load_row<kChunks, true>(a.x + row, sum.width);
  RowPart<kChunks> w{}, branch{};
  if (a.y != nullptr) w = load_row<kChunks, true>(a.w, sum.width);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin < sum.width) branch.chunk[j] = sum_chunk<true, 8>(sum, token, begin);
  }
  add_branch<kChunks, false>(x, branch, {}, 0.0f);
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int begin = chunk_begin(j);
    if (begin < sum.width) store_chunk<true>(a.x_sum + row + begin, x.chunk[j], kChunk);
  }
  if (a.y == nullptr) return;
  float squares[1] = {sum_of_squares(x)};
  sum_over_block(squares, shared);
  store_normalised<kChunks, true>(a.y + row, x, w, inverse_rms(squares[0], a.inverse_width, a.eps),
                                  sum.width);
}
template <int kChunks, bool kVector>
struct CombineAddNorm {
  static auto* get() { return combine_add_norm_kernel<kChunks>; }
};

const char* name_error(cudaError_t error) {
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* find_fault(int64_t rows, int64_t width) {
  if (rows < 0 || rows > INT32_MAX / 2) return "experts: too many rows";
  if (width <= 0 || width > INT32_MAX / 4 || width % kChunk != 0) {
    return "experts: the width must be a multiple of 8";
  }
  return nullptr;
}

RoutedSum describe_sum(const void* in, const float* weights, const void* shared,
                       const int32_t* rows, int64_t top_k, int64_t width) {
  return {static_cast<const Bf16*>(in),     weights,
          static_cast<const Bf16*>(shared), rows,
          static_cast<int>(width),          static_cast<int>(top_k)};
}

}  // namespace

const char* combine_rows(void* y, const void* in, const float* weights, const void* shared,
                         const int32_t* rows, int64_t tokens, int64_t top_k, int64_t width,
                         cudaStream_t stream) {
  if (const char* fault = find_fault(tokens, width)) return fault;
  if (tokens == 0) return nullptr;
  const RowTiles tiles = choose_row_tiles(width, 1);
  if (!fits_grid(tokens, tiles)) return "experts: too many tokens";
  auto* kernel = weights != nullptr ? combine_kernel<true> : combine_kernel<false>;
  return name_error(launch(kernel, grid_of(tokens * tiles.tiles), tiles.threads, stream,
                           describe_sum(in, weights, shared, rows, top_k, width), tiles,
                           static_cast<Bf16*>(y)));
}

const char* combine_add_rms_norm(void* y, void* x_sum, const void* x, const void* in,
                                 const float* weights, const void* shared, const int32_t* rows,
                                 const void* w, int64_t tokens, int64_t top_k, int64_t width,
                                 float eps, cudaStream_t stream) {
  if (const char* fault = find_fault(tokens, width)) return fault;
  if (width > kMaxRowWidth || weights == nullptr || (y == nullptr) != (w == nullptr)) {
    return "experts: rows are too wide for the norm, weights are null, or only one of y and w is "
           "null";
  }
  if (tokens == 0) return nullptr;
  const AddNormArgs args{
      static_cast<Bf16*>(y),       static_cast<Bf16*>(x_sum),        static_cast<const Bf16*>(x),
      static_cast<const Bf16*>(w), 1.0f / static_cast<float>(width), eps};
  return name_error(launch_by_layout<CombineAddNorm>(
      choose_row_layout(width), true, 0, grid_of(tokens), stream,
      describe_sum(in, weights, shared, rows, top_k, width), args));
}

}  // namespace slimexx::kernels

// SwiGLU over rows of activations, and its gradient.
#include "kernels/common/swiglu.cuh"
#include "kernels/rows/row_tiles.cuh"
#include "slimexx/kernels/rows.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

struct SwigluArgs {
  Bf16* out;  // h, or dgate_up
  Bf16* h;    // backward: recomputed h; null: not written
  const Bf16 *gate_up, *dh;
  RowTiles tiles;
  int width;
};

template <int kChunks, bool kVector>
__global__ void __launch_bounds__(256) swiglu_forward_kernel(const SwigluArgs a) {
  enter_kernel();
  const TilePlace place = find_tile(a.tiles, a.width);
  const Bf16* gate_row = a.gate_up + place.row * 2 * a.width;
  Chunk gate[kChunks], up[kChunks];
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    gate[j] = load_chunk<kVector>(gate_row + at, a.width - at);
    up[j] = load_chunk<kVector>(gate_row + a.width + at, a.width - at);
  }
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    float g[kChunk], u[kChunk];
    unpack(g, gate[j]);
    unpack(u, up[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) g[i] = swiglu(g[i], u[i]);
    store_chunk<kVector>(a.out + place.row * a.width + at, pack(g), a.width - at);
  }
}

template <int kChunks, bool kVector>
__global__ void __launch_bounds__(256) swiglu_backward_kernel(const SwigluArgs a) {
  enter_kernel();
  const TilePlace place = find_tile(a.tiles, a.width);
  const int64_t row = place.row * 2 * a.width;
  Chunk gate[kChunks], up[kChunks], dh[kChunks];
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    gate[j] = load_chunk<kVector>(a.gate_up + row + at, a.width - at);
    up[j] = load_chunk<kVector>(a.gate_up + row + a.width + at, a.width - at);
    dh[j] = load_chunk<kVector>(a.dh + place.row * a.width + at, a.width - at);
  }
#pragma unroll
  for (int j = 0; j < kChunks; ++j) {
    const int chunk = place.begin + static_cast<int>(threadIdx.x + j * blockDim.x);
    if (chunk >= place.end) break;
    const int at = chunk * kChunk;
    float g[kChunk], u[kChunk], d[kChunk], h[kChunk];
    unpack(g, gate[j]);
    unpack(u, up[j]);
    unpack(d, dh[j]);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const Sigmoids s = sigmoids(g[i]);
      const float silu = __fmul_rn(g[i], s.of);
      const float slope = __fmul_rn(s.of, __fmaf_rn(g[i], s.of_negative, 1.0f));
      h[i] = __fmul_rn(silu, u[i]);
      g[i] = __fmul_rn(__fmul_rn(d[i], u[i]), slope);
      u[i] = __fmul_rn(d[i], silu);
    }
    store_chunk<kVector>(a.out + row + at, pack(g), a.width - at);
    store_chunk<kVector>(a.out + row + a.width + at, pack(u), a.width - at);
    if (a.h != nullptr) {
      store_chunk<kVector>(a.h + place.row * a.width + at, pack(h), a.width - at);
    }
  }
}

template <int kChunks>
struct Forward {
  static auto* get(bool vector) {
    return vector ? swiglu_forward_kernel<kChunks, true> : swiglu_forward_kernel<kChunks, false>;
  }
};
template <int kChunks>
struct Backward {
  static auto* get(bool vector) {
    return vector ? swiglu_backward_kernel<kChunks, true> : swiglu_backward_kernel<kChunks, false>;
  }
};

// Chunks per thread: more of them keep more loads in flight; fewer spread small inputs over the
// device.
template <template <int> class Kernel, int kMost>
cudaError_t run(SwigluArgs args, int64_t rows, int64_t width, cudaStream_t stream) {
  if (width < 0 || width > INT_MAX / 2) return cudaErrorInvalidValue;
  if (rows == 0 || width == 0) return cudaSuccess;
  const int64_t chunks = rows * divide_up(width, kChunk);
  const int per_thread = chunks < int64_t{1} << 17 ? 1 : chunks < int64_t{1} << 20 ? 2 : kMost;
  args.tiles = choose_row_tiles(width, per_thread);
  args.width = static_cast<int>(width);
  if (!fits_grid(rows, args.tiles)) return cudaErrorInvalidValue;
  const bool vector = width % kChunk == 0 && has_aligned_rows(args.out) &&
                      has_aligned_rows(args.gate_up) && has_aligned_rows(args.dh) &&
                      has_aligned_rows(args.h);
  auto* kernel = per_thread == 1   ? Kernel<1>::get(vector)
                 : per_thread == 2 ? Kernel<2>::get(vector)
                                   : Kernel<kMost>::get(vector);
  return launch(kernel, grid_of(rows * args.tiles.tiles), args.tiles.threads, stream, args);
}

}  // namespace

cudaError_t swiglu_forward(void* h, const void* gate_up, int64_t rows, int64_t width,
                           cudaStream_t stream) {
  const SwigluArgs args{
      static_cast<Bf16*>(h), nullptr, static_cast<const Bf16*>(gate_up), nullptr, {}, 0};
  return run<Forward, 4>(args, rows, width, stream);
}

cudaError_t swiglu_backward(void* dgate_up, void* h, const void* dh, const void* gate_up,
                            int64_t rows, int64_t width, cudaStream_t stream) {
  const SwigluArgs args{static_cast<Bf16*>(dgate_up),
                        static_cast<Bf16*>(h),
                        static_cast<const Bf16*>(gate_up),
                        static_cast<const Bf16*>(dh),
                        {},
                        0};
  return run<Backward, 2>(args, rows, width, stream);
}

}  // namespace slimexx::kernels

// All work between the two products of an expert's backward, in one pass over the routed rows.
// Thread blocks stride over the rows, because the number of rows may be known only on the device.
#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/common/swiglu.cuh"
#include "kernels/rows/row_tiles.cuh"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

using namespace rows;

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int64_t kBlocks = 16 * kMultiprocessors;

struct Args {
  float* dweights;
  Bf16 *h, *gate_up;
  const Bf16* dh;
  const float* weights;
  const int32_t *choices, *count;
  int rows, width;
};

__global__ void __launch_bounds__(kThreads) expert_swiglu_backward_kernel(const Args a) {
  enter_kernel();
  __shared__ float of_warp[2][kWarps];  // double buffered: one row's sums are read while the next
                                        // row's are written
  const int rows = min(*a.count, a.rows);
  const int behind = min(a.rows - rows, static_cast<int>(kReadBehindExperts)) * (a.width / kChunk);
  for (int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); i < behind;
       i += static_cast<int>(gridDim.x) * kThreads) {
    store_chunk<true>(a.h + int64_t{rows} * a.width + int64_t{i} * kChunk, Chunk{}, kChunk);
  }
  for (int row = static_cast<int>(blockIdx.x), turn = 0; row < rows;
       row += static_cast<int>(gridDim.x), turn ^= 1) {
    const int choice = a.choices != nullptr ? a.choices[row] : row;
    const float weight = a.weights[choice];
    Bf16* gate_row = a.gate_up + int64_t{row} * 2 * a.width;
    const int64_t first = int64_t{row} * a.width;
    float sum = 0;
    for (int at = static_cast<int>(threadIdx.x) * kChunk; at < a.width; at += kThreads * kChunk) {
      float gate[kChunk], up[kChunk], dh[kChunk], h[kChunk];
      unpack(gate, load_chunk<true>(gate_row + at, kChunk));
      unpack(up, load_chunk<true>(gate_row + a.width + at, kChunk));
      unpack(dh, load_chunk<true>(a.dh + first + at, kChunk));
      float silu[kChunk], slope[kChunk];
#pragma unroll
      for (int c = 0; c < kChunk; ++c) {
        const Sigmoids s = sigmoids(gate[c]);
        silu[c] = __fmul_rn(gate[c], s.of);
        slope[c] = __fmul_rn(s.of, __fmaf_rn(gate[c], s.of_negative, 1.0f));
        h[c] = __fmul_rn(silu[c], up[c]);
      }
      unpack(h, pack(h));  // h rounded to bf16, as the forward product read it
#pragma unroll
      for (int c = 0; c < kChunk; ++c) {
        sum = __fmaf_rn(dh[c], h[c], sum);
        dh[c] = __fmul_rn(dh[c], weight);
        h[c] = __fmul_rn(h[c], weight);
      }
      store_chunk<true>(a.h + first + at, pack(h), kChunk);
      unpack(dh, pack(dh));
#pragma unroll
      for (int c = 0; c < kChunk; ++c) {
        gate[c] = __fmul_rn(__fmul_rn(dh[c], up[c]), slope[c]);
        up[c] = __fmul_rn(dh[c], silu[c]);
      }
      store_chunk<true>(gate_row + at, pack(gate), kChunk);
      store_chunk<true>(gate_row + a.width + at, pack(up), kChunk);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x % 32 == 0) of_warp[turn][threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
      sum = of_warp[turn][0];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) sum += of_warp[turn][w];
      a.dweights[choice] = sum;
    }
  }
}

}  // namespace

const char* expert_swiglu_backward(float* dweights, void* h, void* gate_up, const void* dh,
                                   const float* weights, const int32_t* choices,
                                   const int32_t* count, int64_t rows, int64_t width,
                                   cudaStream_t stream) {
  if (rows < 0 || rows > INT32_MAX / 2) return "experts: too many rows";
  if (width <= 0 || width > INT32_MAX / 4 || width % kChunk != 0) {
    return "experts: the width must be a multiple of 8";
  }
  if (rows == 0) return nullptr;
  const Args a{dweights,
               static_cast<Bf16*>(h),
               static_cast<Bf16*>(gate_up),
               static_cast<const Bf16*>(dh),
               weights,
               choices,
               count,
               static_cast<int>(rows),
               static_cast<int>(width)};
  const cudaError_t error =
      launch(expert_swiglu_backward_kernel, grid_of(std::min(rows, kBlocks)), kThreads, stream, a);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels

// AdamW over the segments of flat arrays. A thread block walks one span of the arrays in tiles;
// each thread has a piece of eight elements of a tile. A piece inside one segment is moved by
// vectorised loads and stores. A piece at a segment's edge, or with unaligned weights and
// gradients, is moved element by element, with the same arithmetic. `M` is the type in which the
// moments are stored: they are widened for the update, and rounded to nearest even after the
// unrounded moments have updated the master weights.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <climits>
#include <cmath>

#include "kernels/common/bf16.cuh"
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "slimexx/kernels/optimizer.h"

namespace slimexx::kernels {
namespace {

constexpr int kPiece = 8;
constexpr int kThreads = 256;
constexpr int64_t kTile = int64_t{kThreads} * kPiece;
constexpr int64_t kMaxBlocks = kMultiprocessors * 32;

struct Constants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2;
  float step_size, inverse_root_bias2, eps, gradient_scale;
  double lr;
};

template <class M>
struct Arrays {
  __nv_bfloat16* weights;
  float* master;
  M *exp_avg, *exp_avg_sq;
  const float* gradient;
  int64_t n;
};

struct Element {
  float master, exp_avg, exp_avg_sq;
};

// The same operations in the same order as on the CPU, each rounded once.
__device__ __forceinline__ void step(Element& e, float gradient, float decay, const Constants& k) {
  const float g = __fmul_rn(gradient, k.gradient_scale);
  const float c1 = __fmul_rn(k.one_minus_beta1, g);
  const float c2 = __fmul_rn(__fmul_rn(k.one_minus_beta2, g), g);
  e.exp_avg = __fmaf_rn(k.beta1, e.exp_avg, c1);
  e.exp_avg_sq = __fmaf_rn(k.beta2, e.exp_avg_sq, c2);
  const float denominator =
      __fadd_rn(__fmul_rn(__fsqrt_rn(e.exp_avg_sq), k.inverse_root_bias2), k.eps);
  const float change = __fdiv_rn(__fmul_rn(k.step_size, e.exp_avg), denominator);
  e.master = __fsub_rn(__fmul_rn(e.master, decay), change);
}

__device__ __forceinline__ float decay_of(float weight_decay, const Constants& k) {
  return static_cast<float>(1.0 - k.lr * static_cast<double>(weight_decay));
}

__device__ __forceinline__ void load(float (&f)[kPiece], const float* p) {
  const float4 a = reinterpret_cast<const float4*>(p)[0];
  const float4 b = reinterpret_cast<const float4*>(p)[1];
  f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
  f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
}
__device__ __forceinline__ void store(float* p, const float (&f)[kPiece]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(f[0], f[1], f[2], f[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(f[4], f[5], f[6], f[7]);
}
__device__ __forceinline__ void load(float (&f)[kPiece], const __nv_bfloat16* p) {
  const uint4 pairs = *reinterpret_cast<const uint4*>(p);
  const uint32_t pair[kPiece / 2] = {pairs.x, pairs.y, pairs.z, pairs.w};
#pragma unroll
  for (int i = 0; i < kPiece / 2; ++i) {
    f[2 * i] = widen_low(pair[i]);
    f[2 * i + 1] = widen_high(pair[i]);
  }
}
__device__ __forceinline__ void store(__nv_bfloat16* p, const float (&f)[kPiece]) {
  uint32_t pair[kPiece / 2];
#pragma unroll
  for (int i = 0; i < kPiece / 2; ++i) pair[i] = pack_bf16(f[2 * i], f[2 * i + 1]);
  *reinterpret_cast<uint4*>(p) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

__device__ __forceinline__ float widened(float x) { return x; }
__device__ __forceinline__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void store_one(float* p, float x) { *p = x; }
__device__ __forceinline__ void store_one(__nv_bfloat16* p, float x) {
  *p = __float2bfloat16_rn(x);
}

template <class M>
__device__ __forceinline__ void step_piece(const Arrays<M>& a, int64_t at, int64_t shift,
                                           float weight_decay, const Constants& k) {
  float master[kPiece], exp_avg[kPiece], exp_avg_sq[kPiece], gradient[kPiece];
  load(master, a.master + at);
  load(exp_avg, a.exp_avg + at);
  load(exp_avg_sq, a.exp_avg_sq + at);
  load(gradient, a.gradient + at + shift);
  const float decay = decay_of(weight_decay, k);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    Element e{master[i], exp_avg[i], exp_avg_sq[i]};
    step(e, gradient[i], decay, k);
    master[i] = e.master, exp_avg[i] = e.exp_avg, exp_avg_sq[i] = e.exp_avg_sq;
  }
  store(a.master + at, master);
  store(a.exp_avg + at, exp_avg);
  store(a.exp_avg_sq + at, exp_avg_sq);
  if (a.weights != nullptr) store(a.weights + at + shift, master);
}

template <class M>
__device__ __forceinline__ void step_one(const Arrays<M>& a, int64_t at, int64_t shift,
                                         float weight_decay, const Constants& k) {
  Element e{a.master[at], widened(a.exp_avg[at]), widened(a.exp_avg_sq[at])};
  step(e, a.gradient[at + shift], decay_of(weight_decay, k), k);
  a.master[at] = e.master;
  store_one(a.exp_avg + at, e.exp_avg);
  store_one(a.exp_avg_sq + at, e.exp_avg_sq);
  if (a.weights != nullptr) store_one(a.weights + at + shift, e.master);
}

// Returns the first segment from `low` on that ends after `at`.
__device__ __forceinline__ int find_segment(const AdamWSegment* segments, int low, int count,
                                            int64_t at) {
  int high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (segments[middle].end > at) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <class M, bool kVector>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const Arrays<M> a, const Constants k, const AdamWSegment* segments,
                 int num_segments, int64_t tiles_per_block) {
  const int64_t begin = blockIdx.x * tiles_per_block * kTile;
  const int64_t end = min(begin + tiles_per_block * kTile, a.n);
  int s = find_segment(segments, 0, num_segments, begin);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t at = tile + int64_t{threadIdx.x} * kPiece;
    while (s < num_segments && segments[s].end <= at) ++s;
    if (s == num_segments || at >= end) return;
    const AdamWSegment own = segments[s];
    if (kVector && own.begin <= at && own.end >= at + kPiece && own.shift % kPiece == 0) {
      step_piece(a, at, own.shift, own.weight_decay, k);
      continue;
    }
    const int64_t last = min(at + kPiece, a.n);
    for (int edge = s; edge < num_segments && segments[edge].begin < last; ++edge) {
      const AdamWSegment other = segments[edge];
      for (int64_t i = max(at, other.begin); i < min(last, other.end); ++i) {
        step_one(a, i, other.shift, other.weight_decay, k);
      }
    }
  }
}

Constants make_constants(const AdamWArgs& a) {
  return {a.beta1,
          static_cast<float>(1.0 - static_cast<double>(a.beta1)),
          a.beta2,
          static_cast<float>(1.0 - static_cast<double>(a.beta2)),
          static_cast<float>(a.lr / a.bias_correction1),
          static_cast<float>(1.0 / std::sqrt(a.bias_correction2)),
          a.eps,
          a.gradient_scale,
          a.lr};
}

template <class M>
cudaError_t launch(const AdamWArgs& args, const AdamWSegment* segments, int num_segments,
                   cudaStream_t stream) {
  const Arrays<M> arrays{
      static_cast<__nv_bfloat16*>(args.weights), args.master,   static_cast<M*>(args.exp_avg),
      static_cast<M*>(args.exp_avg_sq),          args.gradient, args.n};
  const bool vector = is_aligned(args.weights, 16) && is_aligned(args.master, 16) &&
                      is_aligned(args.exp_avg, 16) && is_aligned(args.exp_avg_sq, 16) &&
                      is_aligned(args.gradient, 16);
  const int64_t tiles = (args.n + kTile - 1) / kTile;
  const int64_t tiles_per_block = (tiles + kMaxBlocks - 1) / kMaxBlocks;
  const auto blocks = static_cast<unsigned>((tiles + tiles_per_block - 1) / tiles_per_block);
  auto* kernel = vector ? adamw_kernel<M, true> : adamw_kernel<M, false>;
  kernel<<<blocks, kThreads, 0, stream>>>(arrays, make_constants(args), segments, num_segments,
                                          tiles_per_block);
  return cudaGetLastError();
}

}  // namespace

cudaError_t adamw(const AdamWArgs& args, const AdamWSegment* segments, int64_t num_segments,
                  cudaStream_t stream) {
  if (args.n < 0 || num_segments < 0 || num_segments > INT_MAX) return cudaErrorInvalidValue;
  if (args.n == 0 || num_segments == 0) return cudaSuccess;
  const auto count = static_cast<int>(num_segments);
  switch (args.moments) {
    case MomentType::kF32:
      return launch<float>(args, segments, count, stream);
    case MomentType::kBf16:
      return launch<__nv_bfloat16>(args, segments, count, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace slimexx::kernels

// The arithmetic of one query row: everything that decides its bits. All kernels use only these
// functions on scores, weights and sums. Multiplications and additions are intrinsics, so that the
// compiler cannot contract them differently in two places.
//
// Per segment, block after block (raw scores s, c = scale * log2 e):
//   m' = max(m, max s);  a = 2^((m - m') c);  p = 2^(s c - m' c);  l = l a + sum p;  O = O a + P V
// Merge of a segment (m, l, o) into the earlier segments (M, L, O), left to right:
//   M' = max(M, m);  O = O 2^((M - M') c) + o 2^((m - M') c);  L likewise.
// Lane l of a warp holds 2 rows (accumulator rows l/4 and l/4 + 8) and 2 of every 8 columns. The
// lane sums its even and its odd columns separately; the quad's sums are added once per segment.
#pragma once
#include <cstdint>

#include "kernels/common/bf16.cuh"
#include "kernels/common/exponential.cuh"
#include "slimexx/kernels/attention.h"

namespace slimexx::kernels::attention {

inline constexpr int kBlock = kAttentionBlockKeys;
inline constexpr int kSegmentBlocks = kAttentionSegmentKeys / kAttentionBlockKeys;
inline constexpr int kScores = kBlock / 2;  // score registers per thread
static_assert(kAttentionSegmentKeys % kAttentionBlockKeys == 0);

struct SoftmaxState {
  float maximum[2];  // raw scores
  float sum[2];      // over this thread's columns until sum_over_quad
};

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ void reset(SoftmaxState& state) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    state.maximum[i] = minus_infinity();
    state.sum[i] = 0.0f;
  }
}

// Causal mask: scores of keys after the row's position become -inf. `last_key[i]`: the position of
// the thread's row i, relative to the block's first key, minus 2 * (lane % 4).
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&s)[kCount], const int (&last_key)[2]) {
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float& score = s[4 * j + 2 * i + c];
        score = 8 * j + c <= last_key[i] ? score : minus_infinity();
      }
    }
  }
}

// decay: factor for the results of the segment's earlier blocks. offset: -m' c.
struct BlockScale {
  float decay, offset;
};

// `highest`: the row's highest score in the block.
__device__ __forceinline__ BlockScale raise_maximum(float& maximum, float highest, float c) {
  highest = fmaxf(highest, maximum);
  // A row without keys so far: pivot 0 gives a decay of 2^-inf = 0; -inf - -inf would be NaN.
  const float pivot = highest == minus_infinity() ? 0.0f : highest;
  BlockScale scale;
  scale.decay = exp2_approx(__fmul_rn(__fsub_rn(maximum, pivot), c));
  maximum = highest;
  scale.offset = -__fmul_rn(pivot, c);
  return scale;
}

__device__ __forceinline__ float weigh_score(float score, float c, float offset) {
  return exp2_approx(__fmaf_rn(score, c, offset));
}

// `even`, `odd`: sums of the block's weights in the thread's even and odd columns, each in
// ascending order of keys.
__device__ __forceinline__ float extend_sum(float sum, float decay, float even, float odd) {
  return __fmaf_rn(sum, decay, __fadd_rn(even, odd));
}

// Turns scores into weights in place; `decay` is the factor for the segment's earlier blocks.
template <int kCount>
__device__ __forceinline__ void weigh_block(float (&s)[kCount], SoftmaxState& state,
                                            float (&decay)[2], float c) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float even = s[2 * i], odd = s[2 * i + 1];
#pragma unroll
    for (int j = 1; j < kCount / 4; ++j) {
      even = fmaxf(even, s[4 * j + 2 * i]);
      odd = fmaxf(odd, s[4 * j + 2 * i + 1]);
    }
    float highest = fmaxf(even, odd);
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 1));
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, 2));
    const BlockScale scale = raise_maximum(state.maximum[i], highest, c);
    decay[i] = scale.decay;
    float even_sum = 0.0f, odd_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
      float& first = s[4 * j + 2 * i];
      float& second = s[4 * j + 2 * i + 1];
      first = weigh_score(first, c, scale.offset);
      second = weigh_score(second, c, scale.offset);
      even_sum = __fadd_rn(even_sum, first);
      odd_sum = __fadd_rn(odd_sum, second);
    }
    state.sum[i] = extend_sum(state.sum[i], decay[i], even_sum, odd_sum);
  }
}

// Rounds the weights to bf16 A fragments of wgmma: 4 registers per 16 keys.
template <int kCount>
__device__ __forceinline__ void round_weights(uint32_t (&p)[kCount / 2], const float (&s)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

template <int kCount>
__device__ __forceinline__ void scale_output(float (&o)[kCount], const float (&decay)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] = __fmul_rn(o[i], decay[(i / 2) % 2]);
}

__device__ __forceinline__ void sum_over_quad(SoftmaxState& state) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    state.sum[i] = __fadd_rn(state.sum[i], __shfl_xor_sync(0xffffffffu, state.sum[i], 1));
    state.sum[i] = __fadd_rn(state.sum[i], __shfl_xor_sync(0xffffffffu, state.sum[i], 2));
  }
}

// Factors for merging a finished segment into the row's earlier segments. A segment in which the
// row has no key is skipped, so that it does not even change the sign of a zero.
struct SegmentMerge {
  float earlier, later;
  bool skip;
};

__device__ __forceinline__ SegmentMerge plan_merge(float& maximum, float& sum, float later_maximum,
                                                   float later_sum, float c) {
  SegmentMerge merge;
  merge.skip = later_maximum == minus_infinity();
  if (merge.skip) return merge;
  const float highest = fmaxf(maximum, later_maximum);
  merge.earlier = exp2_approx(__fmul_rn(__fsub_rn(maximum, highest), c));
  merge.later = exp2_approx(__fmul_rn(__fsub_rn(later_maximum, highest), c));
  maximum = highest;
  sum = __fmaf_rn(later_sum, merge.later, __fmul_rn(sum, merge.earlier));
  return merge;
}

__device__ __forceinline__ float merge_value(float earlier, float later,
                                             const SegmentMerge& merge) {
  return merge.skip ? earlier : __fmaf_rn(later, merge.later, __fmul_rn(earlier, merge.earlier));
}

__device__ __forceinline__ float log_sum_exp(float maximum, float sum, float scale) {
  return __fmaf_rn(maximum, scale, __logf(sum));
}

__device__ __forceinline__ uint32_t finish_pair(float low, float high, float inverse_sum) {
  return pack_bf16(__fmul_rn(low, inverse_sum), __fmul_rn(high, inverse_sum));
}

}  // namespace slimexx::kernels::attention

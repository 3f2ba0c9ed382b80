// Consumer loop of one warpgroup: 64 query rows and the key blocks of a range. The next block's
// scores are issued before the current block's product with the values, so that the tensor cores
// work during the softmax.
#pragma once
#include <cstdint>

#include "kernels/attention/key_stream.cuh"
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/wgmma.cuh"

namespace slimexx::kernels::attention {

template <int kHeadDim>
struct RowTile {
  float output[kHeadDim / 2];
  SoftmaxState state;
  int position[2];  // positions of the thread's two rows in their sequence; -1: no row
};

// Policies of a walk: Segments defines the work between segments, Cursor tracks the ring stage.
template <int kHeadDim>
struct OneSegment {
  static constexpr bool kMerges = false;
  __device__ __forceinline__ void merge(const float (&)[kHeadDim / 2], SoftmaxState&, float) {}
};

// The shuffle tells the compiler that all lanes have the same stage. The compiler then computes
// descriptors on the uniform datapath, which saves a sixth of a step's instructions for one shuffle
// per step.
template <int kStages>
struct UniformCursor : RingCursor<kStages> {
  __device__ __forceinline__ void agree() {
    this->stage = __shfl_sync(0xffffffffu, this->stage, 0);
  }
};

template <int kStages>
struct PlainCursor : RingCursor<kStages> {
  __device__ __forceinline__ void agree() {}
};

template <int kHeadDim, int kStages, class Segments, class Cursor = PlainCursor<kStages>>
struct KeyWalk {
  using Rings = KeyRings<kHeadDim, kStages>;
  Rings rings;
  uint64_t queries;           // descriptor of the warpgroup's 64 rows
  uint32_t query_half_bytes;  // offset from columns 0..63 to columns 64..127
  uint32_t queries_empty;     // barrier to arrive at after the last scores; 0: none
  uint32_t barrier_id;        // named barrier of this warpgroup
  float c;
  Segments segments;
  Cursor key_cursor, value_cursor;

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (threadIdx.x % 32 == 0) arrive(barrier);
  }

  __device__ __forceinline__ void release_queries() const {
    if (queries_empty != 0) release(queries_empty);
  }

  __device__ __forceinline__ void issue_scores(float (&s)[kScores]) const {
    const uint64_t keys = describe_swizzled_tile(rings.keys(key_cursor.stage));
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const uint64_t column = (k % 4) * 2;  // 16 columns are 32 bytes: 2 descriptor units
      wgmma_k16(s, queries + k / 4 * (query_half_bytes >> 4) + column,
                keys + k / 4 * (Rings::kHalfBytes >> 4) + column, k > 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_values(float (&o)[kHeadDim / 2],
                                               const uint32_t (&p)[kScores / 2]) const {
    const uint64_t values =
        describe_swizzled_tile(rings.values(value_cursor.stage), Rings::kHalfBytes);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      wgmma_k16_transposed(o, p + 4 * k, values + k * (16 * 128 >> 4));
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void mask(float (&s)[kScores], const RowTile<kHeadDim>& rows,
                                       int block) const {
    const int first = block * kBlock + 2 * static_cast<int>(threadIdx.x % 4);
    const int last_key[2] = {rows.position[0] - first, rows.position[1] - first};
    mask_scores(s, last_key);
  }

  // Zeroes the rows past the sequence's keys, which hold arbitrary bits. Their weights are 0, but
  // 0 times an infinity or a NaN would be NaN.
  __device__ __forceinline__ void clear_missing_values(int keys_in_block) const {
    const uint32_t buffer = rings.values(value_cursor.stage);
    const int chunks = (kBlock - keys_in_block) * 8;  // 16-byte chunks per half
    for (int half = 0; half < Rings::kHalves; ++half) {
      const uint32_t first = buffer + half * Rings::kHalfBytes + keys_in_block * 128;
      for (int chunk = threadIdx.x % 128; chunk < chunks; chunk += 128) {
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(first + chunk * 16), "r"(0)
                     : "memory");
      }
    }
    fence_shared_for_async();
    sync_named(barrier_id, 128);
  }

  // Computes the scores of `block` and adds the weighted values of the previous block.
  template <bool kMasked>
  __device__ __forceinline__ void step(RowTile<kHeadDim>& rows, float (&s)[kScores],
                                       uint32_t (&p)[kScores / 2], int block, bool last) {
    key_cursor.agree();
    value_cursor.agree();
    wait(rings.keys_full(key_cursor.stage), key_cursor.parity);
    pin_registers(rows.output);
    wgmma_fence();
    issue_scores(s);
    wait(rings.values_full(value_cursor.stage), value_cursor.parity);
    wgmma_fence();
    issue_values(rows.output, p);
    wgmma_wait<1>();
    pin_registers(s);
    release(rings.keys_empty(key_cursor.stage));
    if (last) release_queries();
    key_cursor.advance();
    if constexpr (kMasked) mask(s, rows, block);

    const bool new_segment = Segments::kMerges && block % kSegmentBlocks == 0;
    SoftmaxState finished = rows.state;
    if (new_segment) reset(rows.state);
    float decay[2];
    weigh_block(s, rows.state, decay, c);
    wgmma_wait<0>();
    pin_registers(rows.output);
    pin_registers(s);
    release(rings.values_empty(value_cursor.stage));
    value_cursor.advance();
    // Start a new segment from +0, like the kernels that compute segments separately. A decay of 0
    // would not be enough: a negative output times 0 is -0, and an infinite output times 0 is NaN.
    if (new_segment) {
      segments.merge(rows.output, finished, c);
#pragma unroll
      for (float& value : rows.output) value = 0.0f;
    }
    scale_output(rows.output, decay);
    round_weights(p, s);
  }

  // `first_masked`: the first block with a key after some row's position. On return `rows` has the
  // state and output of the last segment; its sum is not yet added over the quad.
  __device__ __forceinline__ void walk(RowTile<kHeadDim>& rows, const KeyRange& range,
                                       int first_masked) {
    float s[kScores];
    uint32_t p[kScores / 2];
    reset(rows.state);
#pragma unroll
    for (float& value : rows.output) value = 0.0f;

    wait(rings.keys_full(key_cursor.stage), key_cursor.parity);
    wgmma_fence();
    issue_scores(s);
    wgmma_wait<0>();
    pin_registers(s);
    release(rings.keys_empty(key_cursor.stage));
    if (range.first_block + 1 == range.last_block) release_queries();
    key_cursor.advance();
    int block = range.first_block;
    if (block >= first_masked) mask(s, rows, block);
    float decay[2];
    weigh_block(s, rows.state, decay, c);
    round_weights(p, s);

    const int unmasked_end = min(first_masked, range.last_block);
    for (++block; block < unmasked_end; ++block) {
      step<false>(rows, s, p, block, block + 1 == range.last_block);
    }
    for (; block < range.last_block; ++block) {
      step<true>(rows, s, p, block, block + 1 == range.last_block);
    }

    wait(rings.values_full(value_cursor.stage), value_cursor.parity);
    const int present = range.keys - (range.last_block - 1) * kBlock;
    if (present < kBlock) clear_missing_values(present);
    pin_registers(rows.output);
    wgmma_fence();
    issue_values(rows.output, p);
    wgmma_wait<0>();
    pin_registers(rows.output);
    release(rings.values_empty(value_cursor.stage));
    value_cursor.advance();
  }
};

}  // namespace slimexx::kernels::attention

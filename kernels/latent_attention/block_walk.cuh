// The consumer: two warpgroups walk the blocks of one segment together. Each holds half the columns
// of the output in registers. Warpgroup 0 forms the scores and weights of even blocks, warpgroup 1
// those of odd blocks, and both multiply all weights with their half of the values. So the softmax
// of one overlaps the products of the other, and blocks are still added in ascending order.
//
// The weights of a block reach the other warpgroup through shared memory, where they overwrite the
// block's rotary keys; the rows' maxima and decays go through Shared::mail. Each warpgroup sums the
// weights of its own blocks; the two sums are added at the end of a segment.
#pragma once
#include "kernels/attention/row_arithmetic.cuh"
#include "kernels/common/cluster.cuh"
#include "kernels/common/operand.cuh"
#include "kernels/common/stmatrix.cuh"
#include "kernels/common/tma.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/latent_attention/problem.cuh"

namespace slimexx::kernels::latent_attention {

// Named barriers: kWeightsBarrier + g: warpgroup g has stored weights; kBothBarrier: both
// warpgroups; kOwnBarrier + g: warpgroup g alone.
inline constexpr int kWeightsBarrier = 1, kBothBarrier = 3, kOwnBarrier = 4;

__device__ __forceinline__ void release(uint32_t barrier) {
  if (threadIdx.x % 32 == 0) arrive(barrier);
}

// Zeroes the keys past the sequence's end, which hold arbitrary bits. Their weights are 0, but 0
// times an infinity or a NaN would be NaN. Called by the warpgroup that weighs the block; the other
// warpgroup reads the block only after its weights.
__device__ __forceinline__ void clear_missing(uint32_t stage, int present, int group) {
  const int chunks = (kBlock - present) * 8;  // 16-byte chunks per box
  for (int box = 0; box < kBoxes; ++box) {
    const uint32_t first = stage + box * kBoxBytes + present * 128;
    for (int chunk = threadIdx.x % 128; chunk < chunks; chunk += 128) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(first + chunk * 16), "r"(0)
                   : "memory");
    }
  }
  fence_shared_for_async();
  sync_named(kOwnBarrier + group, 128);
}

// Form (row_form.cuh, column_form.cuh): how the warpgroup's threads hold scores, outputs and row
// statistics.
template <class Form>
struct BlockWalk : Form {
  using Form::kGroup;
  using Form::shared;
  using Decay = float[Form::kOwnRows];
  uint32_t n = 0;        // blocks so far, over all items; selects the stage
  bool release_queries;  // release the queries after this segment's last scores

  __device__ __forceinline__ void release_block(uint32_t block_n) const {
    release(shared.empty(block_n, kGroup));
    release(shared.empty(block_n, 2));
  }

  // Walks blocks [first, last) of the sequence; `first` is even. `keys`: keys of the sequence.
  // `first_masked`: the first block with a key after some row's position.
  __device__ __forceinline__ void walk(int first, int last, int keys, int first_masked) {
    this->begin();
    if constexpr (kGroup == 0) {
      walk_even(first, last, keys, first_masked);
    } else {
      walk_odd(first, last, keys, first_masked);
    }
    n += last - first;
  }

  // Without kKeysComeLate the next scores are queued while products are in flight. With
  // kKeysComeLate each block is released as soon as its products have finished, so that its stage
  // is reloaded sooner.
  __device__ __forceinline__ void walk_even(int first, int last, int keys, int first_masked) {
    this->issue_scores(n, keys - first * kBlock);
    for (int block = first; block < last; block += 2) {
      const uint32_t at = n + block - first;
      if (!Form::kKeysComeLate && block > first) {
        wgmma_wait<1>();
        release_block(at - 1);
      }
      this->await_products();
      if (release_queries && block + 2 >= last) release(shared.queries_empty());
      Decay decay;
      this->weigh(at, block, block >= first_masked, decay);
      this->decay_output(decay);
      this->issue_own_values(at);
      this->add_weights();
      if (block + 1 < last) {
        if (Form::kKeysComeLate) finish_block(at);
        this->read_mail(decay);
        if (!Form::kKeysComeLate) finish_block(at);
        this->decay_output(decay);
        this->issue_other_values(at + 1);
        if (block + 2 < last) {
          if (Form::kKeysComeLate) finish_block(at + 1);
          this->issue_scores(at + 2, keys - (block + 2) * kBlock);
        }
      }
    }
    finish_block(n + last - first - 1);
  }

  __device__ __forceinline__ void walk_odd(int first, int last, int keys, int first_masked) {
    const bool scoreless = last - first < 2;
    if (release_queries && scoreless) release(shared.queries_empty());
    for (int block = first; block < last; block += 2) {
      const uint32_t at = n + block - first;
      const bool own = block + 1 < last;
      if (!Form::kKeysComeLate && own) form_scores(at + 1, block + 1, last, keys);
      Decay decay;
      this->read_mail(decay);
      // These barriers completed before the other warpgroup formed its scores. Waiting makes the
      // loaded values visible to this warpgroup.
      for (int box = 0; box < kValueBoxes / 2; box += Form::kFullBoxes) {
        wait(shared.full(at, kGroup * (kValueBoxes / 2) + box), stage_parity(at));
      }
      this->decay_output(decay);
      this->issue_other_values(at);
      if (Form::kKeysComeLate) {
        finish_block(at);
        if (own) form_scores(at + 1, block + 1, last, keys);
      }
      if (own) this->weigh(at + 1, block + 1, block + 1 >= first_masked, decay);
      if (!Form::kKeysComeLate) finish_block(at);
      if (own) {
        this->decay_output(decay);
        this->issue_own_values(at + 1);
        this->add_weights();
        finish_block(at + 1);
      }
    }
  }

  __device__ __forceinline__ void form_scores(uint32_t block_n, int block, int last, int keys) {
    this->issue_scores(block_n, keys - block * kBlock);
    this->await_products();
    if (release_queries && block + 2 >= last) release(shared.queries_empty());
  }

  __device__ __forceinline__ void finish_block(uint32_t block_n) {
    this->await_products();
    release_block(block_n);
  }
};

}  // namespace slimexx::kernels::latent_attention

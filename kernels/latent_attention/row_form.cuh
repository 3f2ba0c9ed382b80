// Form of the walk for training, prefill and long chunks: a warpgroup has half the columns of 64 x
// kValues outputs, and the query rows are the rows of the products.
#pragma once
#include "kernels/latent_attention/block_walk.cuh"

namespace slimexx::kernels::latent_attention {

inline constexpr int kOutputs = kValues / 2 / 2;  // registers per thread: 64 rows, half the columns
inline constexpr int kBlockScores = kBlock / 2;

// The first of a thread's two rows in the tile; the second is 8 rows later.
__device__ __forceinline__ int row_of_thread() {
  return static_cast<int>(threadIdx.x % 128) / 32 * 16 + static_cast<int>(threadIdx.x % 32) / 4;
}

// kThisGroup: the warpgroup, 0 or 1. kThisGathered: threads copy the keys through the generic proxy
// (gather.cuh) and write zeros for missing keys.
template <int kThisGroup, bool kThisGathered = false>
struct RowForm {
  static constexpr int kGroup = kThisGroup;
  static constexpr bool kGathered = kThisGathered;
  static constexpr int kFullBoxes = kGathered ? kGatheredBoxes : 1;  // boxes per full barrier
  static constexpr int kOwnRows = 2;                                 // rows per thread
  static constexpr bool kKeysComeLate = false;  // many tiles read the keys from L2
  using Layout = Shared<kTileRows, 0>;
  Layout shared;
  float c;
  uint32_t sums_turn = 0;  // segments so far, over all items
  float output[kOutputs];
  float scores[kBlockScores];
  uint32_t weights[kBlockScores / 2];
  attention::SoftmaxState state;  // the sum is over this warpgroup's blocks until join_sums
  int position[2];                // positions of the thread's rows in their sequence; -1: no row

  __device__ __forceinline__ void begin() {
    attention::reset(state);
#pragma unroll
    for (float& value : output) value = 0.0f;
    pin_registers(output);
  }

  __device__ __forceinline__ void issue_scores(uint32_t block_n, int present) {
    const uint32_t parity = stage_parity(block_n);
    if (!kGathered && present < kBlock) {
      for (int box = 0; box < kBoxes; ++box) wait(shared.full(block_n, box), parity);
      clear_missing(shared.stage(block_n), present, kGroup);
    }
    const Operand queries(shared.queries(), 0), keys(shared.stage(block_n), 0);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      if (box % kFullBoxes == 0) wait(shared.full(block_n, box), parity);
      if (kGathered && box % kFullBoxes == 0) fence_shared_for_async();
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t at = box * kBoxBytes + k * 32;
        wgmma_k16(scores, queries.at(at), keys.at(at), box > 0 || k > 0);
      }
    }
    wgmma_commit();
  }

  // This warpgroup's columns of the values.
  __device__ __forceinline__ Operand values(uint32_t block_n) const {
    return {shared.stage(block_n) + kGroup * (kValueBoxes / 2 * kBoxBytes), kBoxBytes};
  }

  // Output += weights x values, with the weights of this warpgroup's block (in registers) or of the
  // other warpgroup's block (in shared memory).
  __device__ __forceinline__ void issue_own_values(uint32_t block_n) {
    const Operand columns = values(block_n);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      wgmma_k16_transposed(output, weights + 4 * k, columns.at(k * 16 * 128));
    }
    wgmma_commit();
  }
  __device__ __forceinline__ void issue_other_values(uint32_t block_n) {
    const Operand rows(shared.weights(block_n), 0), columns = values(block_n);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      wgmma_k16_turned_b(output, rows.at(k * 32), columns.at(k * 16 * 128), true);
    }
    wgmma_commit();
  }

  // Skips the multiplication if all decays in the warp are 1, the usual case; the bits are the
  // same.
  __device__ __forceinline__ void decay_output(const float (&decay)[2]) {
    const bool unchanged = decay[0] == 1.0f && decay[1] == 1.0f;
    if (__all_sync(0xffffffffu, unchanged)) return;
    attention::scale_output(output, decay);
  }

  // Turns scores into weights and passes them to the other warpgroup. On entry `state` is the state
  // after the earlier blocks.
  __device__ __forceinline__ void weigh(uint32_t block_n, int block, bool masked,
                                        float (&decay)[2]) {
    if (masked) {
      const int first = block * kBlock + 2 * static_cast<int>(threadIdx.x % 4);
      const int last_key[2] = {position[0] - first, position[1] - first};
      attention::mask_scores(scores, last_key);
    }
    attention::weigh_block(scores, state, decay, c);
    attention::round_weights(weights, scores);
    sync_named(kOwnBarrier + kGroup, 128);  // every warp's scores have read the rotary keys
    const int lane = threadIdx.x % 32;
    const int row = static_cast<int>(threadIdx.x % 128) / 32 * 16 + lane % 16;
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      store_matrices(shared.weights(block_n) + swizzled_offset(row, 2 * k + lane / 16),
                     weights[4 * k], weights[4 * k + 1], weights[4 * k + 2], weights[4 * k + 3]);
    }
    if (lane % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        asm volatile(
            "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared.mail(kGroup, row_of_thread() + 8 * i)),
            "f"(state.maximum[i]), "f"(decay[i])
            : "memory");
      }
    }
    fence_shared_for_async();
    arrive_named(kWeightsBarrier + kGroup, 256);
  }

  // Waits for the other warpgroup's weights of a block, takes over that block's maxima, and scales
  // the earlier sums by its decays.
  __device__ __forceinline__ void read_mail(float (&decay)[2]) {
    sync_named(kWeightsBarrier + 1 - kGroup, 256);
    if (kGathered) fence_shared_for_async();  // only the other warpgroup waited for the copied keys
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(state.maximum[i]), "=f"(decay[i])
                   : "r"(shared.mail(1 - kGroup, row_of_thread() + 8 * i))
                   : "memory");
      state.sum[i] = __fmul_rn(state.sum[i], decay[i]);
    }
  }

  __device__ __forceinline__ void await_products() {
    wgmma_wait<0>();
    pin_registers(output);
    pin_registers(scores);
  }

  // Empty, because weigh() forms the sums.
  __device__ __forceinline__ void add_weights() {}

  // Adds the sums of both warpgroups; every thread gets the sums of its rows.
  __device__ __forceinline__ void join_sums() {
    attention::sum_over_quad(state);
    const uint32_t turn = sums_turn++;
    if (threadIdx.x % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        asm volatile(
            "st.shared.f32 [%0], %1;" ::"r"(shared.sums(turn, kGroup, row_of_thread() + 8 * i)),
            "f"(state.sum[i])
            : "memory");
      }
    }
    sync_named(kBothBarrier, 256);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float even, odd;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(even)
                   : "r"(shared.sums(turn, 0, row_of_thread() + 8 * i))
                   : "memory");
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(odd)
                   : "r"(shared.sums(turn, 1, row_of_thread() + 8 * i))
                   : "memory");
      state.sum[i] = __fadd_rn(even, odd);
    }
  }
};

}  // namespace slimexx::kernels::latent_attention

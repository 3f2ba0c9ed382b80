// Form of the walk for few rows, as in decode: a warpgroup has half the columns of kRows x kValues
// outputs. Operands are swapped relative to row_form.cuh: S^T = K Q^T and O^T = V^T P^T, so that
// keys and value columns fill the 64 rows of a wgmma and the few query rows are its columns. A
// score or an output is the same chain of k16 steps in both forms, hence has the same bits.
//
// Lane l of warp w holds query rows 8 g + 2 (l % 4) + c (c = 0, 1), and for each of them the two
// keys 16 w + l / 4 + 8 i (i = 0, 1) of a block. Maxima go through shared memory. A row's sum is 8
// chains of 8 weights, as in row_arithmetic.cuh. Each chain has keys of all four warps, so the
// weights go through shared memory too: thread 8 r + k adds up chain k of rows r and r + 16 while
// the tensor cores multiply by the values.
#pragma once
#include "kernels/common/wgmma_turned_a.cuh"
#include "kernels/latent_attention/column_exchange.cuh"

namespace slimexx::kernels::latent_attention {

template <int kThisGroup, int kRows>
struct ColumnForm {
  static constexpr int kGroup = kThisGroup;
  static constexpr int kOwnRows = kRows / 4;         // rows per thread; the n-th is row_of(n)
  static constexpr int kFullBoxes = 1;               // boxes per full barrier
  static constexpr bool kKeysComeLate = true;        // keys come from global memory, not from L2
  static constexpr int kTiles = kValueBoxes / 2;     // output tiles of 64 columns
  static constexpr int kSummed = (kRows + 15) / 16;  // rows for which a thread adds up a chain
  using Scratch = ColumnScratch<kRows>;
  using Layout = Shared<kRows, Scratch::kBytes>;
  Layout shared;
  float c;
  uint32_t sums_turn = 0;  // segments so far, over all items
  float output[kTiles][kRows / 2];
  float scores[kRows / 2];
  float maximum[kOwnRows];
  int position[kOwnRows];  // positions of the thread's rows in their sequence; -1: no row
  float sum[kSummed];  // of this thread's chain and the neighbouring chain, over this warpgroup's
                       // blocks
  float row_sum[kOwnRows];  // final sums, after join_sums

  static __device__ __forceinline__ int row_of(int n) {
    return n / 2 * 8 + static_cast<int>(threadIdx.x % 4) * 2 + n % 2;
  }
  static __device__ __forceinline__ int summed_row(int i) {
    return static_cast<int>(threadIdx.x % 128) / 8 + 16 * i;
  }

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) maximum[n] = attention::minus_infinity();
#pragma unroll
    for (int i = 0; i < kSummed; ++i) sum[i] = 0.0f;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) output[tile][i] = 0.0f;
    }
    pin_output();
  }

  __device__ __forceinline__ void issue_scores(uint32_t block_n, int present) {
    const uint32_t parity = stage_parity(block_n);
    if (present < kBlock) {
      for (int box = 0; box < kBoxes; ++box) wait(shared.full(block_n, box), parity);
      clear_missing(shared.stage(block_n), present, kGroup);
    }
    const Operand queries(shared.queries(), 0), keys(shared.stage(block_n), 0);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      wait(shared.full(block_n, box), parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma_k16(scores, keys.at(box * kBoxBytes + k * 32),
                  queries.at(box * Layout::kQueryBoxBytes + k * 32), box > 0 || k > 0);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void issue_own_values(uint32_t block_n) {
    sync_named(kOwnBarrier + kGroup, 128);  // every warp has stored its weights
    issue_values(block_n);
  }
  __device__ __forceinline__ void issue_other_values(uint32_t block_n) { issue_values(block_n); }
  __device__ __forceinline__ void issue_values(uint32_t block_n) {
    const Operand values(shared.stage(block_n) + kGroup * (kTiles * kBoxBytes), 0);
    const Operand weights(shared.weights(block_n), 0);
    pin_output();
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        wgmma_k16_turned_a(output[tile], values.at(tile * kBoxBytes + k * 16 * 128),
                           weights.at(k * 32));
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void decay_output(const float (&decay)[kOwnRows]) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        output[tile][i] = __fmul_rn(output[tile][i], decay[i / 4 * 2 + i % 2]);
      }
    }
  }

  // Turns scores into weights and passes them to the other warpgroup. On entry `maximum` is the
  // maximum over earlier blocks.
  __device__ __forceinline__ void weigh(uint32_t block_n, int block, bool masked,
                                        float (&decay)[kOwnRows]) {
    const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x % 128) / 32;
    if (masked) {
      const int key = block * kBlock + 16 * warp + lane / 4;
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        const bool seen = key + i / 2 % 2 * 8 <= position[i / 4 * 2 + i % 2];
        scores[i] = seen ? scores[i] : attention::minus_infinity();
      }
    }
    float highest[kOwnRows], offset[kOwnRows];
    find_highest<kRows>(scores, shared.scratch(kGroup), kOwnBarrier + kGroup, highest);
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      const attention::BlockScale scale = attention::raise_maximum(maximum[n], highest[n], c);
      decay[n] = scale.decay;
      offset[n] = scale.offset;
    }
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      scores[i] = attention::weigh_score(scores[i], c, offset[i / 4 * 2 + i % 2]);
    }
    store_weights<kRows>(scores, shared.weights(block_n));
    // Chain k adds the keys k, k + 8, ...: key 8 (2 w + i) + k is its element 2 w + i.
    const uint32_t chain = shared.scratch(kGroup) + Scratch::kChainsAt +
                           (lane / 4 * Scratch::kChainPitch + 2 * warp) * 4;
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      const int at = n / 2 * 4 + n % 2;
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(chain + row_of(n) * (Scratch::kRowPitch * 4)),
          "f"(scores[at]), "f"(scores[at + 2])
          : "memory");
    }
    if (threadIdx.x % 128 < 4) {
#pragma unroll
      for (int n = 0; n < kOwnRows; ++n) {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(shared.mail(kGroup, row_of(n))),
                     "f"(maximum[n]), "f"(decay[n])
                     : "memory");
      }
    }
    fence_shared_for_async();
    arrive_named(kWeightsBarrier + kGroup, 256);
  }

  __device__ __forceinline__ float read_decay(int group, int row) const {
    float decay;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(decay)
                 : "r"(shared.mail(group, row) + 4)
                 : "memory");
    return decay;
  }

  // Call after issue_own_values, whose barrier makes the stored chains visible.
  __device__ __forceinline__ void add_weights() {
#pragma unroll
    for (int i = 0; i < kSummed; ++i) {
      const int row = summed_row(i);
      if (row >= kRows) break;  // uniform in a warp
      const uint32_t chain =
          shared.scratch(kGroup) + Scratch::kChainsAt +
          (row * Scratch::kRowPitch + threadIdx.x % 8 * Scratch::kChainPitch) * 4;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        float low, high;
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(low), "=f"(high)
                     : "r"(chain + j * 4)
                     : "memory");
        total = __fadd_rn(__fadd_rn(total, low), high);
      }
      const float neighbour = __shfl_xor_sync(0xffffffffu, total, 1);
      sum[i] = attention::extend_sum(sum[i], read_decay(kGroup, row), total, neighbour);
    }
  }

  // Waits for the other warpgroup's weights of a block, takes over that block's maxima, and scales
  // the earlier sums by its decays.
  __device__ __forceinline__ void read_mail(float (&decay)[kOwnRows]) {
    sync_named(kWeightsBarrier + 1 - kGroup, 256);
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                   : "=f"(maximum[n]), "=f"(decay[n])
                   : "r"(shared.mail(1 - kGroup, row_of(n)))
                   : "memory");
    }
#pragma unroll
    for (int i = 0; i < kSummed; ++i) {
      if (summed_row(i) >= kRows) break;
      sum[i] = __fmul_rn(sum[i], read_decay(1 - kGroup, summed_row(i)));
    }
  }

  __device__ __forceinline__ void pin_output() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) pin_registers(output[tile]);
  }

  __device__ __forceinline__ void await_products() {
    wgmma_wait<0>();
    pin_output();
    pin_registers(scores);
  }

  // Adds each row's chains in the order of sum_over_quad, then the sums of both warpgroups.
  __device__ __forceinline__ void join_sums() {
    const uint32_t turn = sums_turn++;
#pragma unroll
    for (int i = 0; i < kSummed; ++i) {
      const int row = summed_row(i);
      if (row >= kRows) break;
      float total = __fadd_rn(sum[i], __shfl_xor_sync(0xffffffffu, sum[i], 2));
      total = __fadd_rn(total, __shfl_xor_sync(0xffffffffu, total, 4));
      if (threadIdx.x % 8 != 0) continue;
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared.sums(turn, kGroup, row)), "f"(total)
                   : "memory");
    }
    sync_named(kBothBarrier, 256);
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      float even, odd;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(even)
                   : "r"(shared.sums(turn, 0, row_of(n)))
                   : "memory");
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(odd)
                   : "r"(shared.sums(turn, 1, row_of(n)))
                   : "memory");
      row_sum[n] = __fadd_rn(even, odd);
    }
  }
};

}  // namespace slimexx::kernels::latent_attention

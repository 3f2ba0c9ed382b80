// The consumer of a cluster's thread block (cluster_rows.cu), with the operations of
// column_form.cuh.
#pragma once
#include "kernels/latent_attention/cluster_shared.cuh"
#include "kernels/latent_attention/column_form.cuh"

namespace slimexx::kernels::latent_attention {

template <int kRows>
struct ClusterWalk {
  using Layout = ClusterShared<kRows>;
  using Scratch = typename Layout::Scratch;
  static constexpr int kOwnRows = kRows / 4;         // rows per thread; the n-th is row_of(n)
  static constexpr int kSummed = (kRows + 15) / 16;  // rows for which a thread adds up a chain
  Layout shared;
  int rank;
  float c;
  float output[1][kRows / 2];
  float scores[kRows / 2];
  int position[kOwnRows];  // positions of the thread's rows in their sequence; -1: no row
  float decays[kOwnRows];  // decays of the thread's rows for the next key block
  // Thread 4 r + p adds up pair p of the chains of row r, over even and over odd key blocks.
  float even = 0, odd = 0;
  float row_decay = 0, pair = 0;  // next key block: decay of row r, and its sum of pair p

  static __device__ __forceinline__ int row_of(int n) { return ColumnForm<0, kRows>::row_of(n); }
  // Entry for the thread's n-th row in a table with one float per row.
  __device__ __forceinline__ float of_row(uint32_t table, int n) const {
    return load_shared(table + row_of(n) * 4);
  }

  // Scores of the thread block's key block. `missing`: its keys past the sequence's end, which must
  // be cleared (see clear_missing).
  __device__ __forceinline__ void form_scores(int missing, uint32_t parity) {
    wait(shared.keys_full(), parity);
    if (missing > 0) clear_missing(shared.keys(), kBlock - missing, 0);
    wait(shared.queries_full(), 0);
    // Plain descriptors instead of Operand: in uniform registers they need no moves between wgmmas.
    const uint64_t queries = describe_swizzled_tile(shared.queries(), 0);
    const uint64_t keys = describe_swizzled_tile(shared.keys(), 0);
    wgmma_fence();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        wgmma_k16(scores, keys + ((box * kBoxBytes + k * 32) >> 4),
                  queries + ((box * Layout::kWeightBytes + k * 32) >> 4), box > 0 || k > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin_registers(scores);
  }

  __device__ __forceinline__ void mask(int block) {
    const int key = block * kBlock + static_cast<int>(threadIdx.x) / 32 * 16 +
                    static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      const bool seen = key + i / 2 % 2 * 8 <= position[i / 4 * 2 + i % 2];
      scores[i] = seen ? scores[i] : attention::minus_infinity();
    }
  }

  // Run by one warp. Four lanes send to each thread block; together they hold all rows.
  __device__ __forceinline__ void tell_maxima(const float (&highest)[kOwnRows]) const {
    const uint32_t to = threadIdx.x / 4;
#pragma unroll
    for (int n = 0; n < kOwnRows; n += 2) {
      send_pair(shared.maxima(rank) + row_of(n) * 4, make_float2(highest[n], highest[n + 1]),
                shared.maxima_full(), to);
    }
  }

  // Finds the decays for the round's `count` key blocks, one (row, key block) pair per thread and
  // step. Also finds the offsets of this block's key block and the running maxima after the round.
  __device__ __forceinline__ void find_decays(int round, int count) const {
#pragma unroll
    for (int n = 0; n < divide_up(kRound * kRows, kClusterComputing); ++n) {
      const int at = threadIdx.x + n * kClusterComputing, i = at / kRows, row = at % kRows * 4;
      if (i >= count) continue;
      float maximum = load_shared(shared.running(round) + row), own = maximum;
#pragma unroll
      for (int j = 0; j < kRound; ++j) {
        const float highest = load_shared(shared.maxima(j) + row);
        if (j < i) maximum = fmaxf(highest, maximum);
        if (j == i) own = highest;
      }
      const attention::BlockScale scale = attention::raise_maximum(maximum, own, c);
      store_shared(shared.decays(i) + row, scale.decay);
      if (i == rank) store_shared(shared.offsets() + row, scale.offset);
      if (i == count - 1) store_shared(shared.running(round + 1) + row, maximum);
    }
    sync_named(kOwnBarrier, kClusterComputing);
  }

  // Copies bytes to the same address in the other thread blocks.
  __device__ __forceinline__ void send_own(uint32_t place, uint32_t bytes) const {
    const uint32_t to = threadIdx.x;
    if (to < kRound && to != static_cast<uint32_t>(rank)) {
      send_bytes(place, place, bytes, shared.weights_full(rank), to);
    }
  }

  __device__ __forceinline__ void send_weights() {
    const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      const float offset = of_row(shared.offsets(), n);
      const int at = n / 2 * 4 + n % 2;
      scores[at] = attention::weigh_score(scores[at], c, offset);
      scores[at + 2] = attention::weigh_score(scores[at + 2], c, offset);
    }
    store_weights<kRows>(scores, shared.weights(rank));
    // Chain k adds the keys k, k + 8, ...: key 8 (2 w + i) + k is its element 2 w + i.
    const uint32_t chains = shared.scratch() + Scratch::kChainsAt;
    const uint32_t chain = chains + (lane / 4 * Scratch::kChainPitch + 2 * warp) * 4;
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      const int at = n / 2 * 4 + n % 2;
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(chain + row_of(n) * (Scratch::kRowPitch * 4)),
          "f"(scores[at]), "f"(scores[at + 2])
          : "memory");
    }
    fence_shared_for_async();
    sync_named(kOwnBarrier, kClusterComputing);
    send_own(shared.weights(rank), Layout::kWeightBytes);
#pragma unroll
    for (int i = 0; i < kSummed; ++i) {
      const int row = static_cast<int>(threadIdx.x) / 8 + 16 * i;
      if (row >= kRows) break;  // uniform in a warp
      const int k = static_cast<int>(threadIdx.x) % 8;
      const uint32_t own = chains + (row * Scratch::kRowPitch + k * Scratch::kChainPitch) * 4;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < 8; ++j) total = __fadd_rn(total, load_shared(own + j * 4));
      const float neighbour = __shfl_xor_sync(0xffffffffu, total, 1);
      if (k % 2 == 0) {
        store_shared(shared.sums(rank) + (row * 4 + k / 2) * 4, __fadd_rn(total, neighbour));
      }
    }
    fence_shared_for_async();
    sync_named(kOwnBarrier, kClusterComputing);
    send_own(shared.sums(rank), Layout::kSumBytes);
  }

  // Like clear_missing, for the one box with this thread block's columns.
  __device__ __forceinline__ void clear_values(int i, int missing) const {
    const uint32_t first = shared.values(i) + (kBlock - missing) * 128;
    for (int chunk = threadIdx.x; chunk < missing * 8; chunk += kClusterComputing) {
      asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(first + chunk * 16), "r"(0)
                   : "memory");
    }
    fence_shared_for_async();
    sync_named(kOwnBarrier, kClusterComputing);
  }

  // The next three functions add key block `i` of the round to the outputs and sums. await_block
  // waits for the key block's operands while the products of the previous key block are in flight.
  __device__ __forceinline__ void await_block(int i, int missing, uint32_t parity) {
    wait(shared.values_full(i), parity);
    if (missing > 0) clear_values(i, missing);
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) decays[n] = of_row(shared.decays(i), n);
    if (i != rank) wait(shared.weights_full(i), parity);
    if (threadIdx.x < kRows * 4) {
      row_decay = load_shared(shared.decays(i) + threadIdx.x / 4 * 4);
      pair = load_shared(shared.sums(i) + threadIdx.x * 4);
    }
  }
  __device__ __forceinline__ void queue_block(int i) {
#pragma unroll
    for (int n = 0; n < kOwnRows; ++n) {
      const int at = n / 2 * 4 + n % 2;
      output[0][at] = __fmul_rn(output[0][at], decays[n]);
      output[0][at + 2] = __fmul_rn(output[0][at + 2], decays[n]);
    }
    const uint64_t values = describe_swizzled_tile(shared.values(i), 0);
    const uint64_t weights = describe_swizzled_tile(shared.weights(i), 0);
    pin_registers(output[0]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k) {
      wgmma_k16_turned_a(output[0], values + (k * 16 * 128 >> 4), weights + (k * 32 >> 4));
    }
    wgmma_commit();
    // Like extend_sum, but `pair` already is the sum of the two chains. The sum over key blocks of
    // the other parity only decays.
    even = i % 2 == 0 ? __fmaf_rn(even, row_decay, pair) : __fmul_rn(even, row_decay);
    odd = i % 2 == 1 ? __fmaf_rn(odd, row_decay, pair) : __fmul_rn(odd, row_decay);
  }
  __device__ __forceinline__ void finish_block() {
    wgmma_wait<0>();
    pin_registers(output[0]);
  }

  // Adds each row's chains in the order of sum_over_quad, then the sums over even and odd key
  // blocks, and stores the result at shared.offsets().
  __device__ __forceinline__ void join_sums() {
    if (threadIdx.x < kRows * 4) {  // uniform in a warp
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        even = __fadd_rn(even, __shfl_xor_sync(0xffffffffu, even, lanes));
        odd = __fadd_rn(odd, __shfl_xor_sync(0xffffffffu, odd, lanes));
      }
      if (threadIdx.x % 4 == 0) {
        store_shared(shared.offsets() + threadIdx.x, __fadd_rn(even, odd));
      }
    }
    sync_named(kOwnBarrier, kClusterComputing);
  }
};

}  // namespace slimexx::kernels::latent_attention

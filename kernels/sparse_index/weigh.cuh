// The consumers of the score kernel: ReLU of a key block's products, weighted and summed over
// heads.
#pragma once
#include "kernels/common/operand.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/sparse_index/shared.cuh"

namespace slimexx::kernels::sparse_index {

// max(0, x); NaN if x is NaN.
__device__ __forceinline__ float rectify(float x) {
  float y;
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
  return y;
}

// The lane's part of the weighted sum over heads, for query `query` and each of the lane's two
// keys.
template <class S>
__device__ __forceinline__ void add_heads(float (&sums)[2],
                                          const float (&products)[S::kColumns / 2],
                                          uint32_t weights, int query) {
  sums[0] = sums[1] = 0.0f;
#pragma unroll
  for (int j = 0; j < S::kHeads / 8; ++j) {
    const int group = query * (S::kHeads / 8) + j;
    float low, high;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(low), "=f"(high)
                 : "r"(weights + group * 32)
                 : "memory");
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      sums[i] = __fmaf_rn(low, rectify(products[4 * group + 2 * i]), sums[i]);
      sums[i] = __fmaf_rn(high, rectify(products[4 * group + 2 * i + 1]), sums[i]);
    }
  }
}

__device__ __forceinline__ float add_from(float own, float sent, int distance) {
  return __fadd_rn(own, __shfl_xor_sync(0xffffffffu, sent, distance));
}

// Adds the parts of a quad's lanes as (0 + 1) + (2 + 3) and stores the scores. Odd lanes get the
// second key; if there are two queries, lanes 2 and 3 of the quad get the second query.
template <class S>
__device__ __forceinline__ void store_scores(const Problem& p, const Item& item,
                                             const float (&products)[S::kColumns / 2],
                                             uint32_t weights, int block) {
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x % 128) / 32;
  const bool odd = lane % 2 == 1, upper = lane % 4 >= 2;
  const int key = block * kBlock + warp * 16 + lane / 4 + (odd ? 8 : 0);
  float* out = p.scores + item.row * p.score_stride + key;
  weights += lane % 4 * 8;
  if constexpr (S::kQueries == 1) {
    float sums[2];
    add_heads<S>(sums, products, weights, 0);
    float sum = add_from(odd ? sums[1] : sums[0], odd ? sums[0] : sums[1], 1);
    sum = add_from(sum, sum, 2);
    if (!upper && key <= item.position) *out = sum;
  } else {
    if (upper) out += p.score_stride;
#pragma unroll
    for (int query = 0; query < S::kQueries; query += 2) {
      float sums[2][2], sum[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        add_heads<S>(sums[q], products, weights, query + q);
        sum[q] = add_from(odd ? sums[q][1] : sums[q][0], odd ? sums[q][0] : sums[q][1], 1);
      }
      const float score = add_from(upper ? sum[1] : sum[0], upper ? sum[0] : sum[1], 2);
      const int own = query + (upper ? 1 : 0);
      if (own < item.rows && key <= item.position + own) *out = score;
      out += 2 * p.score_stride;
    }
  }
}

// Run by each computing warpgroup.
template <class S>
__device__ __forceinline__ void score_items(const Problem& p, Shared<S> shared, uint32_t group) {
  float products[S::kColumns / 2];
  uint32_t n = 0;
  for (uint32_t tile = 0;; ++tile) {
    wait(shared.queries_full(tile), shared.tile_parity(tile));
    Item item;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(item.rows), "=r"(item.row), "=r"(item.position), "=r"(item.first_block)
                 : "r"(shared.item(tile))
                 : "memory");
    asm volatile("ld.shared.b32 %0, [%1];"
                 : "=r"(item.last_block)
                 : "r"(shared.item(tile) + 16)
                 : "memory");
    if (item.rows == 0) return;
    const int count = item.last_block - item.first_block;
    // The warpgroups alternate over the thread block's key blocks, across items.
    for (int i = static_cast<int>((n ^ group) % 2); i < count; i += 2) {
      const uint32_t at = n + i;
      wait(shared.keys_full(at), shared.block_parity(at));
      const Operand keys(shared.keys(at), 0), queries(shared.queries(tile), 0);
      wgmma_fence();
#pragma unroll
      for (int box = 0; box < S::kBoxes; ++box) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          wgmma_k16(products, keys.at(box * Shared<S>::kKeyBoxBytes + k * 32),
                    queries.at(box * Shared<S>::kQueryBoxBytes + k * 32), box > 0 || k > 0);
        }
      }
      wgmma_commit();
      wgmma_wait<0>();
      pin_registers(products);
      release(shared.keys_empty(at));
      store_scores<S>(p, item, products, shared.weights(tile), item.first_block + i);
    }
    n += count;
    release(shared.queries_empty(tile));  // all lanes have read weights
  }
}

}  // namespace slimexx::kernels::sparse_index

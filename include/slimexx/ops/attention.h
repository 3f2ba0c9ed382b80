// Attention: causal, variable length, grouped queries (N3).
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/cache_rows.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Keys are processed in blocks of a fixed size (kAttentionBlock on the CPU) from the first token of
// the sequence, with one running maximum and sum per query (online softmax). The bits of a query
// depend on its own sequence only.
inline constexpr int64_t kAttentionBlock = 64;

// The queries of sequence b are rows cu_seqlens[b] .. cu_seqlens[b+1] of the batch, at positions
// context_lens[b], context_lens[b]+1, ... of the sequence. Keys and values have one of three
// layouts; all of them include the batch's own rows:
//   packed: k, v [T,Hkv,D]; all context lengths are 0;
//   paged:  k, v [num_pages, page_tokens, Hkv, D], or FP8 (cache_rows.h); position p of sequence b
//           is in page page_table[b, p / page_tokens] at slot p % page_tokens;
//   gathered (CPU): k, v [num_keys,Hkv,D]; position p of sequence b is row key_starts[b] + p.
//           Starts ascend from 0. Chunks of one sequence have the same start; their keys end at the
//           next different start.
struct AttentionLayout {
  std::span<const int32_t> cu_seqlens;    // [B+1], host
  std::span<const int32_t> context_lens;  // [B], host; empty: all 0
  Tensor page_table;                      // [B, max_pages] i32; undefined: packed
  int64_t page_tokens = 0;
  // CUDA, paged: promises that earlier steps wrote the keys before context_lens, the lengths and
  // the page table, and that a kernel that calls enter_kernel() (kernels/common/early_launch.cuh)
  // lies between those writes and this call. Decode may then read them while the kernels before it
  // still run.
  bool context_is_written = false;
  // CUDA reads the lengths from the device: if both bounds are given, the host spans may be empty
  // (as in recorded graphs).
  Tensor device_cu_seqlens = {}, device_context_lens = {};  // [B+1], [B] i32; the latter paged only
  int64_t max_query_len = 0, max_key_len = 0;  // upper bounds; 0: from the host's lengths
  int64_t max_split_tokens = INT32_MAX;  // CUDA, paged: bounds scratch (kernels/attention_runs.h)
  // [T,k] i32: the keys that each query sees, as select_keys writes them (sparse_attention.h);
  // undefined: all keys up to the query's position. Blocks count the keys in this list, so a query
  // whose list has all of its keys gets the same bits as without a list. On CUDA the forward
  // supports lists only in the latent form, and the backward only with one key head per query head.
  Tensor selected = {};
  std::span<const int32_t> key_starts = {};  // [B], host; empty: packed or paged
  int64_t num_keys = 0;                      // gathered only
  // CUDA, packed, backward: the queries whose gradients are needed, [B,4] i32, as
  // kernels/attention_backward.h defines them; undefined: all.
  Tensor query_spans = {};

  int64_t context_len(size_t b) const { return context_lens.empty() ? 0 : context_lens[b]; }
};
// (scratch) Writes out[T,Hq,Dv], from the first Dv <= D elements of each value; q, k, v and out
// have a free token stride. v may be k if the values are the first elements of the keys (the latent
// form, one key head). On CUDA the latent form is the only one with Dv < D, and its queries must be
// contiguous. lse[T,Hq]: log-sum-exp of the scaled scores; may be undefined if no backward follows.
void attention_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, const CacheRows& k,
                       const CacheRows& v, const AttentionLayout& layout, float scale);
// (scratch) Packed or gathered. Writes dq[T,Hq,D], dk[K,Hkv,D] and dv[K,Hkv,Dv] for all K keys (no
// accumulation; free token stride). Keys that no query of the batch sees get zeros.
void attention_backward(const Context& ctx, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale);
// Writes rows k, v [T,Hkv,D] (free token stride) to their slots: slots[t] = page * page_tokens +
// offset, i32 (below 0: skipped). v and v_pages may be undefined. On CUDA they must be undefined:
// there qk_norm_rotary_forward writes keys and values together.
void write_kv_pages(const Context& ctx, Tensor k_pages, Tensor v_pages, Tensor k, Tensor v,
                    Tensor slots);

}  // namespace slimexx::ops

// Attention: causal, variable length, grouped queries (N3).
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Keys are walked in blocks of a fixed size (kAttentionBlock on the CPU) from the sequence's first
// token, with one running maximum and sum per query (online softmax); a query's bits depend on its
// own sequence only.
inline constexpr int64_t kAttentionBlock = 64;

// The queries of sequence b are rows cu_seqlens[b] .. cu_seqlens[b+1] of the batch; they stand at
// positions context_lens[b], context_lens[b]+1, ... of their sequence. Where keys and values live:
//   packed: k, v [T,Hkv,D] are the batch's own rows, and every context length is 0;
//   paged:  k, v [num_pages, page_tokens, Hkv, D] hold the keys of position p of sequence b in page
//           page_table[b, p / page_tokens] at slot p % page_tokens, the batch's own rows included;
//   gathered (CPU): k, v [num_keys,Hkv,D] hold the keys of position p of sequence b in row
//           key_starts[b] + p, the batch's own rows included. Starts ascend from 0. Sequences that
//           are chunks of one have the same start, and the keys behind it up to the next start.
struct AttentionLayout {
  std::span<const int32_t> cu_seqlens;    // [B+1], host
  std::span<const int32_t> context_lens;  // [B], host; empty: all 0
  Tensor page_table;                      // [B, max_pages] i32; undefined: packed
  int64_t page_tokens = 0;
  // CUDA, paged: the keys before context_lens are of earlier steps, and a kernel that begins with
  // enter_kernel() (kernels/common/early_launch.cuh) stands between them and this call. The same of
  // lengths and page table. Then decode reads them while the kernels before it run.
  bool context_is_written = false;
  // CUDA reads the lengths from the device: with both bounds the host's may be empty (a graph's).
  Tensor device_cu_seqlens = {}, device_context_lens = {};  // [B+1], [B] i32; the latter paged only
  int64_t max_query_len = 0, max_key_len = 0;  // upper bounds; 0: from the host's lengths
  int64_t max_split_tokens = INT32_MAX;  // CUDA, paged: bounds scratch (kernels/attention_runs.h)
  // [T,k] i32: the keys that each query sees, as select_keys writes them (sparse_attention.h);
  // undefined: all up to its own. Blocks are of keys in this list, so a query that sees all of its
  // keys has the bits that it has without a list. On CUDA the forward takes it in the latent form,
  // the backward with a key head for every query head.
  Tensor selected = {};
  std::span<const int32_t> key_starts = {};  // [B], host; empty: packed or paged
  int64_t num_keys = 0;                      // gathered only
  // CUDA, packed, backward: the queries whose gradients are wanted, [B,4] i32, as
  // kernels/attention_backward.h has them; undefined: all.
  Tensor query_spans = {};

  int64_t context_len(size_t b) const { return context_lens.empty() ? 0 : context_lens[b]; }
};
// (scratch) out[T,Hq,Dv] (q, k, v, out with free token stride) of the first Dv elements of values,
// Dv <= D. So v may be k, whose first elements are the values: the latent form, with one key head,
// and the only one with Dv < D on CUDA, where its queries are contiguous. lse[T,Hq] (log-sum-exp of
// the scaled scores; may be undefined when no backward follows).
void attention_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                       const AttentionLayout& layout, float scale);
// (scratch) Packed or gathered. dq[T,Hq,D], and dk[K,Hkv,D], dv[K,Hkv,Dv] of all K keys are written
// (not accumulated; free token stride). Keys that no query of the batch sees get zeros.
void attention_backward(const Context& ctx, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale);
// Writes rows k, v [T,Hkv,D] (free token stride) to their slots: slots[t] = page * page_tokens +
// offset, i32 (below 0: nowhere). v and v_pages may be undefined; on CUDA they are, and where there
// are values it is part of qk_norm_rotary_forward.
void write_kv_pages(const Context& ctx, Tensor k_pages, Tensor v_pages, Tensor k, Tensor v,
                    Tensor slots);

}  // namespace slimexx::ops

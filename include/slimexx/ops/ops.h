// Checked mathematics on tensors: the only callers of kernels/. Each op checks shapes, dtypes and
// devices (SLX_CHECK: a wrong shape is our own bug), then runs the CPU reference (src/ops/cpu) or
// launches the CUDA kernel on the stream. Ops never allocate, never synchronise, and keep the
// numeric contract (docs/numerics.md): in forward ops a row of the output depends on its own row of
// the input only, by one fixed order of operations.
//
// Legend: T packed tokens (rows), H hidden size, N output features, K input features, D head
// dimension, Hq query heads, Hkv key/value heads, V vocabulary, F feed-forward size, R selected
// rows, B sequences. Weights, activations, their gradients, keys and values are of
// tensor::compute_dtype (f32 on the CPU, bf16 on CUDA); said to be f32 everywhere: gradients of
// weights, optimizer state, logits, log-probs, statistics, rotary tables. Row tensors may be
// strided views in their first dimension where said "(strided)"; all else is contiguous. On CUDA
// the ops marked (scratch) take memory from stream.scratch while they run.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/tensor/tensor.h"

namespace slimexx::ops {

using tensor::Stream;
using tensor::Tensor;

// ---- matmul.cpp (N2: ascending k, one fused multiply-add chain per output)
// y[T,N] = x[T,K] w[N,K]^T (+ bias[N], added last). bias may be undefined. x, y strided (dense rows
// on CUDA). y may be f32 on CUDA too: the same sums without the last rounding.
void matmul_forward(Stream stream, Tensor y, Tensor x, Tensor w, Tensor bias);
// (scratch, on the CPU too) h[T,F] with the bits of swiglu_forward after matmul_forward by w[2F,K]
// and bias[2F], whose result stands in scratch or, where the device fuses both, nowhere.
void matmul_swiglu_forward(Stream stream, Tensor h, Tensor x, Tensor w, Tensor bias);
// (scratch) dx[T,K] (+)= dy[T,N] w[N,K]
void matmul_backward_input(Stream stream, Tensor dx, Tensor dy, Tensor w, bool accumulate);
// (scratch) dw[N,K] f32 (+)= dy[T,N]^T x[T,K]; dbias[N] f32 += column sums of dy (if defined)
void matmul_backward_weight(Stream stream, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate = true);

// ---- norm.cpp: RMSNorm over the last dimension, y = w * (x * rsqrt(mean(x^2) + eps)) (N4)
// x, y [T,H] (strided rows); w[H].
void rms_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps);
// x_sum[T,H] = x + branch, or x + rms_norm(branch) with weights branch_norm[H] where defined; then
// y = rms_norm(x_sum) with weights w, where y and w are defined. x_sum may be x where branch_norm
// is undefined.
void add_rms_norm_forward(Stream stream, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps);
// (scratch) dx[T,H] (+)= ...; dw[H] += .... The statistics are computed again from x.
void rms_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate);
// The same per head: x, y [T, heads, D] views whose token stride is free; w[D]. CPU only: on CUDA
// they are part of qk_norm_rotary, and so is rotary.
void head_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps);
void head_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                        float eps);

// ---- rotary.cpp
enum class RotaryStyle : uint8_t { kHalfSplit, kInterleaved };
// cos, sin [positions, rotary_dim/2] f32 tables (model/rotary). Rotates in place the first
// rotary_dim = 2*cos.dim(1) of every head of x[T, heads, D] (token stride free); positions[T] i32.
// `inverse` rotates by the negative angle (the backward pass).
void rotary(Stream stream, Tensor x, Tensor cos, Tensor sin, Tensor positions, RotaryStyle style,
            bool inverse);

// What stands between the projection and attention: RMSNorm of every query and key head where
// q_norm and k_norm [D] are defined, then the rotation of both. `in` and `out` [T,(Hq+2Hkv)D];
// `out` may be `in`, or [T,(Hq+Hkv)D]: then the values stay in `in` alone. With pages (k_pages,
// v_pages [num_pages, page_tokens, Hkv, D]) keys and values go to their slots[T] = page *
// page_tokens + offset (below 0: nowhere), and only queries need be written to `out`.
struct QkvHeads {
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
};
struct RotaryTable {
  Tensor cos, sin;  // [positions, rotary_dim/2] f32
  RotaryStyle style = RotaryStyle::kHalfSplit;
};
struct KvSlots {
  Tensor k_pages, v_pages;  // undefined: packed
  Tensor slots;             // [T] i32
};
void qk_norm_rotary_forward(Stream stream, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads);
// (scratch) In place over d[T,(Hq+2Hkv)D]; dq_norm, dk_norm [D] += .... `raw` is the forward's
// `in`; it and the norms may be undefined where there is no norm.
void qk_norm_rotary_backward(Stream stream, Tensor d, Tensor dq_norm, Tensor dk_norm, Tensor raw,
                             Tensor q_norm, Tensor k_norm, float eps, const RotaryTable& rotary,
                             Tensor positions, const QkvHeads& heads);

// ---- attention.cpp: causal, variable length, grouped queries (N3)
// Keys are walked in blocks of a fixed size (kAttentionBlock on the CPU) from the sequence's first
// token, with one running maximum and sum per query (online softmax); a query's bits depend on its
// own sequence only.
inline constexpr int64_t kAttentionBlock = 64;

// The queries of sequence b are rows cu_seqlens[b] .. cu_seqlens[b+1] of the batch; they stand at
// positions context_lens[b], context_lens[b]+1, ... of their sequence. Where keys and values live:
//   packed: k, v [T,Hkv,D] are the batch's own rows, and every context length is 0;
//   paged:  k, v [num_pages, page_tokens, Hkv, D] hold the keys of position p of sequence b in page
//           page_table[b, p / page_tokens] at slot p % page_tokens, the batch's own rows included.
struct AttentionLayout {
  std::span<const int32_t> cu_seqlens;    // [B+1], host
  std::span<const int32_t> context_lens;  // [B], host; empty: all 0
  Tensor page_table;                      // [B, max_pages] i32; undefined: packed
  int64_t page_tokens = 0;
  // CUDA reads the lengths from the device: with both bounds the host's may be empty (a graph's).
  Tensor device_cu_seqlens = {}, device_context_lens = {};  // [B+1], [B] i32; the latter paged only
  int64_t max_query_len = 0, max_key_len = 0;  // upper bounds; 0: from the host's lengths
  int64_t max_split_tokens = INT32_MAX;  // CUDA, paged: bounds scratch (kernels/attention_runs.h)
};
// (scratch) out[T,Hq,D] (q, k, v, out with free token stride), lse[T,Hq] (log-sum-exp of the scaled
// scores; may be undefined when no backward follows).
void attention_forward(Stream stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                       const AttentionLayout& layout, float scale);
// (scratch) Packed only. dq[T,Hq,D], dk[T,Hkv,D], dv[T,Hkv,D] are written (not accumulated; free
// token stride).
void attention_backward(Stream stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale);
// Writes rows k, v [T,Hkv,D] (free token stride) to their slots: slots[t] = page * page_tokens +
// offset, i32 (below 0: nowhere). CPU only: on CUDA it is part of qk_norm_rotary_forward.
void write_kv_pages(Stream stream, Tensor k_pages, Tensor v_pages, Tensor k, Tensor v,
                    Tensor slots);

// ---- elementwise.cpp
// h[T,F] = silu(gate) * up, gate_up[T,2F] = gate columns then up columns.
void swiglu_forward(Stream stream, Tensor h, Tensor gate_up);
// dgate_up may be gate_up. h, where defined, is written as by the forward; it may be dh.
void swiglu_backward(Stream stream, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up);
void add(Stream stream, Tensor y, Tensor a, Tensor b);  // y = a + b, elementwise; y may be a
void add_scaled(Stream stream, Tensor y, Tensor x, float scale);  // y += scale * x
void scale(Stream stream, Tensor y, float factor);
void fill_zero(Stream stream, Tensor y);
void copy(Stream stream, Tensor y, Tensor x);       // same shape; converts float dtypes
void copy_rows(Stream stream, Tensor y, Tensor x);  // [T,N] f32, both strided; CPU only
// y[i] = x[rows[i]] (rows i32 [R]); and the transpose dx[rows[i]] += dy[i], distinct rows.
void gather_rows(Stream stream, Tensor y, Tensor x, Tensor rows);
void scatter_add_rows(Stream stream, Tensor dx, Tensor dy, Tensor rows);

// ---- embedding.cpp: tokens[T] i32, table[V,H]
void embedding_forward(Stream stream, Tensor y, Tensor table, Tensor tokens);
// (scratch) dtable += dy, t ascending.
void embedding_backward(Stream stream, Tensor dtable, Tensor dy, Tensor tokens);

// ---- log_prob.cpp: log-softmax of logits / temperature in f32 over the true vocabulary (N9)
// (scratch) In place over logits[R,V] f32 (strided): logits /= temperature, then for each row the
// log-normaliser log sum exp into lse[R]. log p(v) = logits[r,v] - lse[r], one subtraction; it is
// what sampling and training both report.
void normalize_logits(Stream stream, Tensor logits, Tensor lse, float temperature);
// (scratch) log_probs[R] = logits[r, targets[r]] - lse[r]; entropies[R] = -sum p log p (may be
// undefined).
void gather_log_probs(Stream stream, Tensor log_probs, Tensor entropies, Tensor logits, Tensor lse,
                      Tensor targets);
// dlogits[R,V] of the compute dtype (may be logits itself where that is f32) of sum_r
// dlog_probs[r]*log_probs[r] + dentropies[r]*entropies[r], with respect to the raw logits before
// the temperature. dentropies and entropies may be undefined.
//   dlogits = (dlp * (1_target - p) - dH * p * (log p + H)) / temperature
void log_probs_backward(Stream stream, Tensor dlogits, Tensor logits, Tensor lse, Tensor targets,
                        Tensor entropies, Tensor dlog_probs, Tensor dentropies, float temperature);

// The same three without logits in memory, where the device has it: the product of hidden[R,H] and
// the vocabulary's weights w[V,H] is made twice, once forward and once for its gradient, or kept in
// between. The bits are those of matmul_forward into f32 logits followed by the ops above. CUDA
// only.
bool fuses_lm_head(tensor::Device device);
// (scratch) log_probs, lse [R]; entropies [R] may be undefined. Where `logits` [R,V] f32 is given,
// the raw logits stay there for lm_head_kept_backward.
void lm_head_forward(Stream stream, Tensor log_probs, Tensor entropies, Tensor lse, Tensor hidden,
                     Tensor w, Tensor targets, float temperature, Tensor logits = {});
bool can_keep_logits(Tensor w);  // lm_head_forward's; V and H must be multiples of 8
// (scratch) dlogits[R,V] of the compute dtype; entropies and dentropies as in log_probs_backward.
void lm_head_backward_logits(Stream stream, Tensor dlogits, Tensor hidden, Tensor w, Tensor lse,
                             Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                             float temperature);
// The same bits from kept logits. dlogits may lie in the first halves of the logits' rows.
void lm_head_kept_backward(Stream stream, Tensor dlogits, Tensor logits, Tensor lse, Tensor targets,
                           Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature);

// ---- sampling.cpp
// How one row is sampled: one record of 48 bytes in a table that the engine stages.
struct SamplingRow {
  float temperature = 1.0f;
  float top_p = 1.0f;  // 1: off
  int32_t top_k = 0;   // 0: off
  float min_p = 0.0f;  // 0: off
  int32_t greedy = 0;  // 1: the largest logit, the lowest id of equals
  uint32_t unused = 0;
  uint64_t seed = 0;  // Philox key of the sample
  uint32_t counter[4] = {0, 0, 0, 0};
};
static_assert(sizeof(SamplingRow) == 48);
// (scratch) One token per row of raw logits[R,V] f32, which may be overwritten. A row is normalised
// as by normalize_logits with its own temperature; tokens[R] i32 and log_probs[R] = logits[r,token]
// - lse, before any truncation (N9). Truncation order: top_k, then top_p over
// the renormalised rest (smallest set whose mass reaches top_p, ties to the lower id), then min_p
// (p >= min_p * max p). The uniform number walks the kept tokens in id order. `rows` [R, 48] U8
// holds SamplingRows. `allowed_tokens`: ids at or above it are never sampled (0: the whole row). A
// row of NaN, +inf or nothing but -inf gives the token -1 (see throw_bad_logits).
void sample_tokens(Stream stream, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens);
// In place over tokens[T] i32: an id below 0 stands for sampled[~id], what the step before sampled
// in that row (sampled[R] i32); where that is -1 it becomes 0.
void resolve_tokens(Stream stream, Tensor tokens, Tensor sampled);
// tokens[R] i32 and log_probs[R] to the host, in stream order. On CUDA the host's memory must be a
// StagingBuffer's and a kernel writes it: between recorded steps a copy takes many times as long.
void hand_out_samples(Stream stream, int32_t* host_tokens, float* host_log_probs, Tensor tokens,
                      Tensor log_probs);
// The error that a token of -1 calls for, once the caller has seen it.
[[noreturn]] void throw_bad_logits(int64_t row);

// ---- optimizer.cpp
struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay;
  int64_t step;          // 1-based, for the bias correction
  float gradient_scale;  // multiplies the gradient first (clipping)
};
// Flat [n] tensors: master weights and gradient f32; first and second moments both f32 or both
// bf16; `weights` (may be the master itself, or another dtype) receives the rounded result.
// Decoupled decay as torch.optim.AdamW:
//   p *= 1 - lr*wd; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   p -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
// Moments in bf16 are widened, updated in f32, used for p as they are then, and stored rounded to
// nearest even. Rounding by chance would be right on average, but its bits would hang on a random
// stream that every cut of the state and every resume had to reproduce; to nearest they depend on
// the element alone. The price: a moment stays where it is while a step would move it by less than
// half a bf16 unit, 2^-9 to 2^-8 of itself, so that a moment whose beta is above 1 - 2^-8 may never
// fall back once gradients are small.
void adamw(Stream stream, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
           Tensor gradient, const AdamWStep& step);
// The same over ranges of master and moments [n], each with its own decay (step.weight_decay is
// unused). `weights` and `gradient` [m] may be longer: element i of a range is their element
// i + shift, so that the state may hold some pieces of theirs one after another. Ranges ascend and
// do not overlap, here or there. (scratch)
struct DecayRange {
  int64_t begin = 0, end = 0;
  float weight_decay = 0;
  int64_t shift = 0;
};
void adamw_ranges(Stream stream, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
                  Tensor gradient, std::span<const DecayRange> ranges, const AdamWStep& step);
// (scratch) Sum of squares in double, in a fixed order; NaN or Inf pass through. Waits for the
// stream.
double sum_of_squares(Stream stream, Tensor x);
// The same over ranges of x [n] alone. The order depends on the ranges' lengths and sequence, not
// on where they lie; of a single one it is that of sum_of_squares.
struct ElementRange {
  int64_t begin = 0, end = 0;
};
double sum_of_squares_of_ranges(Stream stream, Tensor x, std::span<const ElementRange> ranges);

}  // namespace slimexx::ops

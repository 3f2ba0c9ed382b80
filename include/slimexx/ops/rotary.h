// Rotary embeddings, and the step between the QKV projection and attention.
#pragma once
#include <cstdint>

#include "slimexx/ops/cache_rows.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

enum class RotaryStyle : uint8_t { kHalfSplit, kInterleaved };
// cos, sin [positions, rotary_dim/2] f32 tables (model/rotary). Rotates in place the first
// rotary_dim = 2*cos.dim(1) of every head of x[T, heads, D] (token stride free); positions[T] i32.
// `inverse` rotates by the negative angle (the backward pass).
void rotary(const Context& ctx, Tensor x, Tensor cos, Tensor sin, Tensor positions,
            RotaryStyle style, bool inverse);

struct RotaryTable {
  Tensor cos, sin;  // [positions, rotary_dim/2] f32
  RotaryStyle style = RotaryStyle::kHalfSplit;
};
// Elements [begin, begin + width) of every head of y[T,n,*] = elements of x[T,n,*] from x_begin on,
// rotated as by rotary(). y may be x with x_begin = begin.
void rotate_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                         int64_t width, const RotaryTable& rotary, Tensor positions, bool inverse);
// Where latent rows are stored too.
struct LatentSlots {
  // [num_pages, page_tokens, 1, R+D], or kU8 rows (cache_rows.h). Undefined: no pages.
  Tensor pages = {};
  Tensor slots = {};    // [T], as for write_kv_pages
  bool is_fp8 = false;  // rows are rounded as by round_latent_rows, also without pages
};
struct NormedRows {
  Tensor y = {}, x = {}, w = {};
};
// The rows of latent attention: the first R elements of latent[T,R+D] are the RMSNorm of the first
// R of raw[T,R+D] with weights norm[R], the other D are rotated (token strides free). With pages,
// rows are also written there. If the tensors of `queries` are defined, also
// y[T,Q] = rms_norm(x[T,Q]) with weights w[Q] (token strides free).
void latent_rows_forward(const Context& ctx, Tensor latent, Tensor raw, Tensor norm, float eps,
                         const RotaryTable& rotary, Tensor positions, const LatentSlots& kv,
                         const NormedRows& queries = {});
// The queries of latent attention: the first R elements of queries[T,n,R+D] are nope[T,n,N]
// w[n,N,R] with the sums of head_matmul_backward_input, the other D are rope[T,n,D] rotated (token
// strides free).
void latent_queries_forward(const Context& ctx, Tensor queries, Tensor nope, Tensor w, Tensor rope,
                            const RotaryTable& rotary, Tensor positions);

// The step between projection and attention: RMSNorm of every query and key head if q_norm and
// k_norm [D] are defined, then the rotation of both. `in` and `out` are [T,(Hq+2Hkv)D]; `out` may
// be `in`, or [T,(Hq+Hkv)D], which leaves the values in `in` only. With pages (k_pages, v_pages
// [num_pages, page_tokens, Hkv, D]) keys and values are written to slots[T] = page * page_tokens +
// offset (below 0: skipped), and `out` needs to receive only the queries. With is_fp8
// keys and values are rounded as by round_keys, and FP8 pages receive their bytes. Without pages,
// values that are in `in` only are rounded there.
struct QkvHeads {
  int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
};
struct KvSlots {
  CacheRows k_pages = {}, v_pages = {};  // undefined: packed
  Tensor slots = {};                     // [T] i32
  bool is_fp8 = false;                   // if there are pages, they are FP8
};
void qk_norm_rotary_forward(const Context& ctx, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads);
// (scratch, on the CPU too) In place over d[T,(Hq+2Hkv)D]; dq_norm, dk_norm [D] += ..., undefined
// if the norm is frozen. `raw` is the forward's `in`; `raw` and the norms may be undefined if the
// layer has no norm.
void qk_norm_rotary_backward(const Context& ctx, Tensor d, Tensor dq_norm, Tensor dk_norm,
                             Tensor raw, Tensor q_norm, Tensor k_norm, float eps,
                             const RotaryTable& rotary, Tensor positions, const QkvHeads& heads);

}  // namespace slimexx::ops

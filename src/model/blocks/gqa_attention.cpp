#include "slimexx/model/blocks/gqa_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/blocks/key_pages.h"
#include "model/context_attention.h"
#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::model {
namespace {

// rows[T, heads*D] as [T, heads, D]; the token stride is kept, so a column range of a wider row
// works.
Tensor view_heads(Tensor rows, int64_t heads, int64_t head_dim) {
  return rows.split_last({heads, head_dim});
}

struct QkvViews {
  Tensor q, k, v;  // [T,Hq,D], [T,Hkv,D], [T,Hkv,D]
};

// `values`: a tensor whose last columns are the values; may be `qkv` itself.
QkvViews split_qkv(Tensor qkv, Tensor values, const GqaSpec& spec) {
  const int64_t q = spec.q_size(), kv = spec.kv_size();
  return {view_heads(qkv.columns(0, q), spec.num_heads, spec.head_dim),
          view_heads(qkv.columns(q, q + kv), spec.num_kv_heads, spec.head_dim),
          view_heads(values.columns(q + kv, q + 2 * kv), spec.num_kv_heads, spec.head_dim)};
}

QkvViews split_qkv(const GqaTape& tape, const GqaSpec& spec) {
  return split_qkv(tape.qkv, spec.qk_norm ? tape.qkv_raw : tape.qkv, spec);
}

// Keys and values that the batch's queries attend to. With context parallelism these are
// all-gathered, from the arena.
QkvViews gather_keys(const ops::Context& ctx, const GqaSpec& spec, const Batch& batch,
                     const GqaTape& tape) {
  QkvViews qkv = split_qkv(tape, spec);
  if (!batch.context.is_sharded()) return qkv;
  const int64_t q = spec.q_size(), kv = spec.kv_size();
  const Tensor values = spec.qk_norm ? tape.qkv_raw : tape.qkv;
  const Tensor all = gather_context(
      ctx, batch.context, {tape.qkv.columns(q, q + kv), values.columns(q + kv, q + 2 * kv)});
  qkv.k = view_heads(all.columns(0, kv), spec.num_kv_heads, spec.head_dim);
  qkv.v = view_heads(all.columns(kv, 2 * kv), spec.num_kv_heads, spec.head_dim);
  return qkv;
}

// The result of gather_keys in pages, from the arena.
LayerPages gather_key_pages(const ops::Context& ctx, const GqaSpec& spec, const Batch& batch,
                            const GqaTape& tape) {
  const int64_t q = spec.q_size(), kv = spec.kv_size();
  const Tensor values = spec.qk_norm ? tape.qkv_raw : tape.qkv;
  const auto gather = [&](Tensor part) {
    return gather_context_pages(ctx, batch.context, part)
        .split_last({spec.num_kv_heads, spec.head_dim});
  };
  return {.k = gather(tape.qkv.columns(q, q + kv)),
          .v = gather(values.columns(q + kv, q + 2 * kv))};
}

ops::QkvHeads qkv_heads(const GqaSpec& spec) {
  return {spec.num_heads, spec.num_kv_heads, spec.head_dim};
}

float attention_scale(const GqaSpec& spec) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
}

// With QK-norm the tape keeps values only in qkv_raw.
int64_t kept_qkv_size(const GqaSpec& spec) {
  return spec.qk_norm ? spec.q_size() + spec.kv_size() : spec.qkv_size();
}

}  // namespace

GqaSpec narrow(const GqaSpec& spec, const dist::GridSizes& sizes) {
  check_tp_divides("num_attention_heads", spec.num_heads, sizes.tp);
  check_tp_copies("num_key_value_heads", spec.num_kv_heads, sizes.tp);
  GqaSpec own = spec;
  own.num_heads /= sizes.tp;
  own.num_kv_heads = std::max<int64_t>(spec.num_kv_heads / sizes.tp, 1);
  return own;
}

GqaParameters<ParameterId> declare(ParameterList& list, const GqaSpec& s, const std::string& own,
                                   const std::string& hf) {
  const std::string attention = hf + "self_attn.";
  const auto qkv = [&](const char* kind) {
    return std::vector<HfRows>{{attention + "q_proj." + kind, s.q_size()},
                               {attention + "k_proj." + kind, s.kv_size()},
                               {attention + "v_proj." + kind, s.kv_size()}};
  };
  // Each rank holds whole heads of queries, of keys and of values.
  const Shard by_head{
      .axis = 0,
      .sections = {{s.q_size(), s.head_dim}, {s.kv_size(), s.head_dim}, {s.kv_size(), s.head_dim}}};
  const Shard by_head_columns{.axis = 1, .sections = {{s.q_size(), s.head_dim}}};
  GqaParameters<ParameterId> p;
  p.qkv.weight =
      list.add_linear(own + "attention.qkv.weight", qkv("weight"), s.hidden_size, {by_head});
  p.qkv.bias = list.add_bias_if(s.qkv_bias, own + "attention.qkv.bias", qkv("bias"), {by_head});
  p.q_norm = list.add_norm_if(s.qk_norm, own + "attention.q_norm.weight",
                              attention + "q_norm.weight", s.head_dim);
  p.k_norm = list.add_norm_if(s.qk_norm, own + "attention.k_norm.weight",
                              attention + "k_norm.weight", s.head_dim);
  p.o.weight =
      list.add_linear(own + "attention.o.weight", {{attention + "o_proj.weight", s.hidden_size}},
                      s.q_size(), {by_head_columns}, InitKind::kResidual);
  p.o.bias = list.add_bias_if(s.o_bias, own + "attention.o.bias",
                              {{attention + "o_proj.bias", s.hidden_size}});
  return p;
}

void check_device_sizes(const GqaSpec& spec, tensor::Device device) {
  if (device.is_cpu() || spec.head_dim == 64 || spec.head_dim == 128) return;
  throw Error(ErrorCode::kInput,
              fmt::format("heads of {} elements: attention supports 64 and 128 on {}",
                          spec.head_dim, tensor::to_string(device)),
              "use --device cpu", "head_dim");
}

std::vector<CopiedRows> list_copied_rows(const GqaSpec& whole, const GqaSpec& own,
                                         const GqaParameters<Tensor>& gradients, int tp) {
  if (whole.num_kv_heads >= tp) return {};
  const int num_copies = tp / static_cast<int>(whole.num_kv_heads);
  std::vector<CopiedRows> rows;
  for (const Tensor& t : {gradients.qkv.weight, gradients.qkv.bias})
    if (t.defined()) rows.push_back({t.rows(own.q_size(), own.qkv_size()), num_copies});
  return rows;
}

std::string describe(const GqaSpec& s) {
  return fmt::format("grouped-query attention, {} heads over {} of {}{}", s.num_heads,
                     s.num_kv_heads, s.head_dim, s.qk_norm ? ", QK-norm" : "");
}

double forward_flops(const GqaSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), q = static_cast<double>(s.q_size());
  const auto hidden = static_cast<double>(s.hidden_size);
  const double projections =
      2 * n * hidden * static_cast<double>(s.qkv_size()) + 2 * n * q * hidden;
  return projections + 2 * q * n * n;  // scores and values, each 2 q n^2, halved by causality
}

void allocate_kept(Arena& arena, const GqaSpec& spec, const RowCounts& counts, LayerKeep level,
                   GqaTape& tape) {
  const int64_t num_tokens = counts.all;
  const DType dtype = tensor::compute_dtype(arena.device());
  const auto rows = [&](int64_t width) { return arena.allocate(dtype, {num_tokens, width}); };
  tape.attention = rows(spec.q_size());
  tape.lse = arena.allocate(DType::kF32, {num_tokens, spec.num_heads});
  if (level < LayerKeep::kAll) return;
  if (spec.qk_norm) tape.qkv_raw = rows(spec.qkv_size());
  tape.qkv = rows(kept_qkv_size(spec));
}

void allocate_rest(Arena& arena, const GqaSpec& spec, const RowCounts& counts, GqaTape& tape) {
  const int64_t num_tokens = counts.all;
  const DType dtype = tensor::compute_dtype(arena.device());
  const auto add_rows = [&](Tensor& t, int64_t width) {
    if (!t.defined()) t = arena.allocate(dtype, {num_tokens, width});
  };
  if (spec.qk_norm) add_rows(tape.qkv_raw, spec.qkv_size());
  add_rows(tape.qkv, kept_qkv_size(spec));
  add_rows(tape.attention, spec.q_size());
  if (!tape.lse.defined()) tape.lse = arena.allocate(DType::kF32, {num_tokens, spec.num_heads});
}

int64_t page_bytes(const GqaSpec& spec, DType dtype, int64_t page_tokens) {
  return 2 * page_tokens * key_bytes(spec.fp8_cache, spec.num_kv_heads, spec.head_dim, dtype);
}

LayerPages make_pages(const GqaSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                      int64_t page_tokens) {
  const int64_t half = memory.size_bytes() / 2;
  const auto view = [&](int64_t offset) {
    return make_key_pages(spec.fp8_cache, dtype, memory.rows(offset, memory.size_bytes()),
                          {num_pages, page_tokens, spec.num_kv_heads, spec.head_dim});
  };
  return {.k = view(0), .v = view(half)};
}

void project_qkv(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const GqaTape& tape, Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor projected = spec.qk_norm ? tape.qkv_raw : tape.qkv;
  ops::matmul_forward(ctx, projected, gather_tp_rows(ctx, batch, normed), w.qkv);
  const ops::KvSlots kv{
      .k_pages = pages.k, .v_pages = pages.v, .slots = batch.slots, .is_fp8 = spec.fp8_cache};
  ops::qk_norm_rotary_forward(ctx, tape.qkv, projected, w.q_norm, w.k_norm,
                              static_cast<float>(spec.rms_norm_eps), rotary, batch.positions, kv,
                              qkv_heads(spec));
}

void attend(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>&,
            const ops::RotaryTable&, const Batch& batch, const LayerPages& pages,
            const GqaTape& tape) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor out = view_heads(tape.attention, spec.num_heads, spec.head_dim);
  const Tensor q = split_qkv(tape, spec).q;
  const LayerPages seen =
      batch.context.page_rows.defined() ? gather_key_pages(ctx, spec, batch, tape) : pages;
  if (seen.k.defined())
    return ops::attention_forward(ctx, out, tape.lse, q, seen.k, seen.v, batch.attention,
                                  attention_scale(spec));
  const QkvViews qkv = gather_keys(ctx, spec, batch, tape);
  ops::attention_forward(ctx, out, tape.lse, q, qkv.k, qkv.v, batch.attention,
                         attention_scale(spec));
}

void project_out(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
                 const Batch& batch, const GqaTape& tape, Tensor o) {
  row_parallel_forward(ctx, batch, o, tape.attention, w.o, spec.leaves);
}

namespace {

// Writes dqkv, the gradient of the normed and rotated rows.
void backward_of_keys(const ops::Context& ctx, const GqaSpec& spec, const Batch& batch,
                      const GqaTape& tape, Tensor dattention, Tensor dqkv) {
  const tensor::ArenaScope scope(ctx.arena);
  const QkvViews qkv = gather_keys(ctx, spec, batch, tape);
  QkvViews d = split_qkv(dqkv, dqkv, spec);
  const int64_t kv = spec.kv_size();
  Tensor dall;  // with context parallelism: this rank's terms of the gradients of all keys, values
  if (batch.context.is_sharded()) {
    dall = ctx.arena.allocate(dqkv.dtype(), {qkv.k.dim(0), 2 * kv});
    d.k = view_heads(dall.columns(0, kv), spec.num_kv_heads, spec.head_dim);
    d.v = view_heads(dall.columns(kv, 2 * kv), spec.num_kv_heads, spec.head_dim);
  }
  const int64_t q = spec.q_size();
  context_attention_backward(ctx, batch, {dqkv.columns(0, q), d.k, d.v},
                             {.q = tape.qkv.columns(0, q),
                              .k = qkv.k,
                              .v = qkv.v,
                              .out = tape.attention,
                              .dout = dattention,
                              .lse = tape.lse},
                             attention_scale(spec));
  if (!dall.defined()) return;
  const Tensor own = reduce_context(ctx, batch.context, dall).split_last({1, 2 * kv});
  ops::copy_head_columns(
      ctx, dqkv.columns(spec.q_size(), spec.q_size() + 2 * kv).split_last({1, 2 * kv}), 0, own, 0,
      2 * kv);
}

}  // namespace

void backward(const ops::Context& ctx, const GqaSpec& spec, const GqaParameters<Tensor>& w,
              const GqaParameters<Tensor>& g, const ops::RotaryTable& rotary, const Batch& batch,
              const GqaTape& tape, Tensor own_dout, Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor dout = gather_tp_rows(ctx, batch, own_dout);
  const auto rows = [&](int64_t width) {
    return ctx.arena.allocate(dout.dtype(), {dout.dim(0), width});
  };
  const Tensor dattention = rows(spec.q_size()), dqkv = rows(spec.qkv_size());
  ops::matmul_backward_weight(ctx, g.o.weight, on_first_tp_rank(ctx, g.o.bias), dout,
                              tape.attention, accumulate);
  attention_next();
  ops::matmul_backward_input(ctx, dattention, dout, w.o.weight, false);
  backward_of_keys(ctx, spec, batch, tape, dattention, dqkv);
  ops::qk_norm_rotary_backward(ctx, dqkv, g.q_norm, g.k_norm, tape.qkv_raw, w.q_norm, w.k_norm,
                               static_cast<float>(spec.rms_norm_eps), rotary, batch.positions,
                               qkv_heads(spec));
  ops::matmul_backward_weight(ctx, g.qkv.weight, g.qkv.bias, dqkv,
                              gather_tp_rows(ctx, batch, normed), accumulate);
  const Tensor partial = allocate_partial(ctx, batch, dnormed);
  ops::matmul_backward_input(ctx, partial, dqkv, w.qkv.weight, false);
  scatter_tp_sum(ctx, batch, dnormed, partial);
}

}  // namespace slimexx::model

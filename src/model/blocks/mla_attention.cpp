#include "slimexx/model/blocks/mla_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/context_attention.h"
#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

float scale_of(const MlaSpec& s) {
  return static_cast<float>(s.scale_factor / std::sqrt(static_cast<double>(s.head_dim())));
}
float eps_of(const MlaSpec& s) { return static_cast<float>(s.norm_eps); }

// Views of rows [T, ...].
struct QueryViews {
  Tensor nope, rope;  // [T,n,Dn], [T,n,Dr]
};
QueryViews split_queries(Tensor q, const MlaSpec& s) {
  const int64_t nope = s.num_heads * s.nope_dim;
  return {q.columns(0, nope).split_last({s.num_heads, s.nope_dim}),
          q.columns(nope, q.dim(1)).split_last({s.num_heads, s.rope_dim})};
}
struct LatentViews {
  Tensor normed, rope;  // [T,Rkv], [T,1,Dr]
};
// Views of the last Rkv+Dr columns of `rows`.
LatentViews split_latent(Tensor rows, const MlaSpec& s) {
  const int64_t end = rows.dim(1), begin = end - s.latent_size();
  return {rows.columns(begin, begin + s.kv_rank),
          rows.columns(begin + s.kv_rank, end).split_last({1, s.rope_dim})};
}
Tensor heads(Tensor rows, const MlaSpec& s, int64_t width) {
  return rows.split_last({s.num_heads, width});
}

// Latent rows that the batch's queries attend to. With context parallelism these are all-gathered,
// from the arena.
Tensor seen_latent(const ops::Context& ctx, const Batch& batch, const MlaTape& tape) {
  return batch.context.is_sharded() ? gather_context(ctx, batch.context, {tape.latent})
                                    : tape.latent;
}

struct HeadGradients {
  Tensor dq;       // [T,n(Dn+Dr)] in the order of q_weight, before the rotation
  Tensor dnormed;  // [T,Rkv] gradient of the normed latent
  Tensor drope;    // [T,Dr] gradient of the shared key, before the rotation
};

// Backward of attention with expanded keys and values, and the gradients of k_weight and v_weight.
// With context parallelism each rank expands the K rows of all ranks, and its gradients of these
// rows and of the weights are terms of a sum over the ranks.
void attention_backward(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
                        const MlaParameters<Tensor>& g, const ops::RotaryTable& rotary,
                        const Batch& batch, const MlaTape& tape, Tensor dattention, bool accumulate,
                        const HeadGradients& d) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t n = s.num_heads;
  const bool is_sharded = batch.context.is_sharded();
  const Tensor all_latent = seen_latent(ctx, batch, tape);
  const auto rows = [&](int64_t width) {
    return ctx.arena.allocate(dattention.dtype(), {dattention.dim(0), width});
  };
  const auto key_rows = [&](int64_t width) {
    return ctx.arena.allocate(dattention.dtype(), {all_latent.dim(0), width});
  };
  const auto flat = [&](const Tensor& weight) {
    if (!weight.defined()) return weight;  // undefined: the gradient of frozen weights
    return weight.reshaped({weight.dim(0) * weight.dim(1), weight.dim(2)});
  };
  const LatentViews latent = split_latent(all_latent, s);
  const QueryViews q = split_queries(tape.q, s);
  const Tensor normed = key_rows(s.kv_rank);  // contiguous, as products require
  const Tensor k_nope = key_rows(n * s.nope_dim), v = key_rows(n * s.value_dim);
  ops::copy_head_columns(ctx, normed.split_last({1, s.kv_rank}), 0,
                         latent.normed.split_last({1, s.kv_rank}), 0, s.kv_rank);
  ops::matmul_forward(ctx, k_nope, normed, {flat(w.k_weight)});
  ops::matmul_forward(ctx, v, normed, {flat(w.v_weight)});
  // Concatenates the two parts of each head. Attention's backward needs values no wider than
  // queries and keys, so these are padded with zeros if necessary.
  const int64_t width = std::max(s.head_dim(), s.value_dim);
  const Tensor query_rows = rows(n * width), all_keys = key_rows(n * width);
  const Tensor queries = heads(query_rows, s, width), keys = heads(all_keys, s, width);
  if (width > s.head_dim()) {
    ops::fill_zero(ctx, query_rows);
    ops::fill_zero(ctx, all_keys);
  }
  ops::copy_head_columns(ctx, queries, 0, q.nope, 0, s.nope_dim);
  ops::rotate_head_columns(ctx, queries, s.nope_dim, q.rope, 0, s.rope_dim, rotary, batch.positions,
                           false);
  ops::copy_head_columns(ctx, keys, 0, heads(k_nope, s, s.nope_dim), 0, s.nope_dim);
  ops::copy_head_columns(ctx, keys, s.nope_dim, latent.rope, 0, s.rope_dim);
  const Tensor dqueries = rows(n * width), dkeys = key_rows(n * width);
  const Tensor dv = key_rows(n * s.value_dim);
  const Tensor dq_heads = heads(dqueries, s, width), dk_heads = heads(dkeys, s, width);
  context_attention_backward(ctx, batch, {dqueries, dk_heads, heads(dv, s, s.value_dim)},
                             {.q = query_rows,
                              .k = keys,
                              .v = heads(v, s, s.value_dim),
                              .out = tape.attention,
                              .dout = dattention,
                              .lse = tape.lse},
                             scale_of(s));

  const QueryViews dq = split_queries(d.dq, s);
  ops::copy_head_columns(ctx, dq.nope, 0, dq_heads, 0, s.nope_dim);
  ops::rotate_head_columns(ctx, dq.rope, 0, dq_heads, s.nope_dim, s.rope_dim, rotary,
                           batch.positions, true);
  const Tensor drope = is_sharded ? key_rows(s.rope_dim) : d.drope;
  const Tensor dnormed = is_sharded ? key_rows(s.kv_rank) : d.dnormed;
  ops::sum_head_columns(ctx, drope, dk_heads, s.nope_dim);
  const Tensor dk_nope = k_nope;
  ops::copy_head_columns(ctx, heads(dk_nope, s, s.nope_dim), 0, dk_heads, 0, s.nope_dim);
  ops::matmul_backward_weight(ctx, flat(g.k_weight), {}, dk_nope, normed, accumulate);
  ops::matmul_backward_weight(ctx, flat(g.v_weight), {}, dv, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, dk_nope, flat(w.k_weight), false);
  ops::matmul_backward_input(ctx, dnormed, dv, flat(w.v_weight), true);
  if (is_sharded) {
    ops::copy(ctx, d.drope, reduce_context(ctx, batch.context, drope));
    ops::copy(ctx, d.dnormed, reduce_context(ctx, batch.context, dnormed));
  }
  const Tensor own_drope = d.drope.split_last({1, s.rope_dim});
  ops::rotate_head_columns(ctx, own_drope, 0, own_drope, 0, s.rope_dim, rotary, batch.positions,
                           true);
}

// Declares one part of a tensor on disk that has `head_rows` rows per head: rows [begin, begin +
// size) of every head. at(h): index of head h in the parameter.
template <class At>
void add_head_parts(ParameterInfo& info, const std::string& name, const MlaSpec& s,
                    int64_t head_rows, int64_t columns, int64_t begin, int64_t size, const At& at) {
  for (int64_t h = 0; h < s.num_heads; ++h)
    info.parts.push_back({.name = name,
                          .shape = {s.num_heads * head_rows, columns},
                          .at = at(h),
                          .begin = {h * head_rows + begin, 0},
                          .size = {size, columns}});
}

}  // namespace

MlaSpec narrow(const MlaSpec& spec, const dist::GridSizes& sizes) {
  check_tp_divides("num_attention_heads", spec.num_heads, sizes.tp);
  MlaSpec own = spec;
  own.num_heads /= sizes.tp;
  return own;
}

MlaParameters<ParameterId> declare(ParameterList& list, const MlaSpec& s, const std::string& own,
                                   const std::string& hf) {
  const std::string mine = own + "attention.", attention = hf + "self_attn.";
  const int64_t n = s.num_heads, q_input = s.q_rank > 0 ? s.q_rank : s.hidden_size;
  const auto into_ranks = [&](const char* kind) {
    std::vector<HfRows> parts;
    if (s.q_rank > 0) parts.push_back({attention + "q_a_proj." + kind, s.q_rank});
    parts.push_back({attention + "kv_a_proj_with_mqa." + kind, s.latent_size()});
    return parts;
  };
  const Shard by_head{.axis = 0};
  MlaParameters<ParameterId> p;
  p.a.weight = list.add_linear(mine + "a.weight", into_ranks("weight"), s.hidden_size, {});
  p.a.bias = list.add_bias_if(s.bias, mine + "a.bias", into_ranks("bias"));
  p.q_norm = list.add_norm_if(s.q_rank > 0, mine + "q_norm.weight",
                              attention + "q_a_layernorm.weight", s.q_rank);
  p.kv_norm =
      list.add_norm(mine + "kv_norm.weight", attention + "kv_a_layernorm.weight", s.kv_rank);

  ParameterInfo q{.name = mine + "q.weight", .shape = {n * s.head_dim(), q_input}};
  const std::string q_name = attention + (s.q_rank > 0 ? "q_b_proj.weight" : "q_proj.weight");
  add_head_parts(q, q_name, s, s.head_dim(), q_input, 0, s.nope_dim, [&](int64_t h) {
    return std::vector<int64_t>{h * s.nope_dim, 0};
  });
  add_head_parts(q, q_name, s, s.head_dim(), q_input, s.nope_dim, s.rope_dim, [&](int64_t h) {
    return std::vector<int64_t>{n * s.nope_dim + h * s.rope_dim, 0};
  });
  q.shards = {
      {.axis = 0, .sections = {{n * s.nope_dim, s.nope_dim}, {n * s.rope_dim, s.rope_dim}}}};
  q.is_linear = true;
  p.q.weight = list.add(std::move(q));

  const auto add_from_latent = [&](const char* name, int64_t begin, int64_t size) {
    ParameterInfo info{.name = mine + name, .shape = {n, size, s.kv_rank}, .shards = {by_head}};
    add_head_parts(info, attention + "kv_b_proj.weight", s, s.nope_dim + s.value_dim, s.kv_rank,
                   begin, size, [](int64_t h) {
                     return std::vector<int64_t>{h, 0, 0};
                   });
    return list.add(std::move(info));
  };
  p.k_weight = add_from_latent("k.weight", 0, s.nope_dim);
  p.v_weight = add_from_latent("v.weight", s.nope_dim, s.value_dim);
  p.o.weight = list.add_linear(
      mine + "o.weight", {{attention + "o_proj.weight", s.hidden_size}}, n * s.value_dim,
      {{.axis = 1, .sections = {{n * s.value_dim, s.value_dim}}}}, InitKind::kResidual);
  p.o.bias =
      list.add_bias_if(s.bias, mine + "o.bias", {{attention + "o_proj.bias", s.hidden_size}});
  p.indexer = s.indexer
                  ? declare_indexer(list, *s.indexer, mine + "indexer.", attention + "indexer.")
                  : no_indexer();
  return p;
}

void check_device_sizes(const MlaSpec& spec, tensor::Device device) {
  if (device.is_cpu()) return;
  if (spec.indexer) check_device_sizes(*spec.indexer, device);
  const auto check = [device](const char* key, int64_t size, int64_t most) {
    if (size % 8 == 0 && size <= most) return;
    throw Error(ErrorCode::kInput,
                fmt::format("{} is {}: latent attention supports multiples of 8 up to {} on {}",
                            key, size, most, tensor::to_string(device)),
                "use --device cpu", key);
  };
  constexpr int64_t kAnySize = INT64_MAX;
  check("kv_lora_rank", spec.kv_rank, ops::kMostLatentValues);
  check("qk_rope_head_dim", spec.rope_dim, ops::kMostLatentRotary);
  check("qk_nope_head_dim", spec.nope_dim, ops::kMostWideHeadDim - spec.rope_dim);
  check("v_head_dim", spec.value_dim, ops::kMostWideHeadDim);
  check("q_lora_rank", spec.q_rank, kAnySize);
  check("hidden_size", spec.hidden_size, kAnySize);
}

std::string describe(const MlaSpec& s) {
  std::string text = fmt::format("latent attention, {} heads of {} + {} rotary, values {}, ",
                                 s.num_heads, s.nope_dim, s.rope_dim, s.value_dim);
  text += s.q_rank > 0 ? fmt::format("ranks {} and {}", s.q_rank, s.kv_rank)
                       : fmt::format("queries from the input, rank {}", s.kv_rank);
  if (s.indexer)
    text += fmt::format(", selects {} keys with {} index heads of {}", s.top_k,
                        s.indexer->num_heads, s.indexer->head_dim);
  else if (s.top_k > 0)
    text += ", uses the keys selected by the previous indexer";
  return text;
}

double forward_flops(const MlaSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), h = static_cast<double>(s.hidden_size);
  const auto heads = static_cast<double>(s.num_heads);
  const auto per_head = [&](int64_t width) { return heads * static_cast<double>(width); };
  const double q_input = s.q_rank > 0 ? static_cast<double>(s.q_rank) : h;
  const double weights = h * static_cast<double>(s.a_size()) + q_input * per_head(s.head_dim()) +
                         per_head(s.nope_dim + s.value_dim) * static_cast<double>(s.kv_rank) +
                         per_head(s.value_dim) * h;
  // Scores and values of the expanded form: each query sees the earlier tokens, at most top_k of
  // them.
  const double k = s.top_k > 0 ? std::min(n, static_cast<double>(s.top_k)) : n;
  const double pairs = n * k - k * k / 2;
  const double index = s.indexer ? forward_flops(*s.indexer, num_tokens) : 0;
  return 2 * n * weights + 2 * pairs * per_head(s.head_dim() + s.value_dim) + index;
}

void allocate_kept(Arena& arena, const MlaSpec& spec, const RowCounts& counts, LayerKeep level,
                   MlaTape& tape) {
  const DType dtype = tensor::compute_dtype(arena.device());
  tape.attention = arena.allocate(dtype, {counts.all, spec.num_heads * spec.value_dim});
  tape.lse = arena.allocate(DType::kF32, {counts.all, spec.num_heads});
  if (level == LayerKeep::kAll) allocate_rest(arena, spec, counts, tape);
}

void allocate_rest(Arena& arena, const MlaSpec& spec, const RowCounts& counts, MlaTape& tape) {
  const DType dtype = tensor::compute_dtype(arena.device());
  const auto add_rows = [&](Tensor& t, int64_t width) {
    if (!t.defined()) t = arena.allocate(dtype, {counts.all, width});
  };
  if (!tape.a.defined()) tape.a = arena.allocate(dtype, {counts.own, spec.a_size()});
  if (spec.q_rank > 0) add_rows(tape.q_normed, spec.q_rank);
  add_rows(tape.latent, spec.latent_size());
  add_rows(tape.q, spec.num_heads * spec.head_dim());
  add_rows(tape.attention, spec.num_heads * spec.value_dim);
  if (!tape.lse.defined()) tape.lse = arena.allocate(DType::kF32, {counts.all, spec.num_heads});
}

namespace {

int64_t latent_row_bytes(const MlaSpec& spec, DType dtype) {
  const int64_t element = tensor::dtype_bytes(dtype);
  return spec.fp8_cache ? tensor::latent_f8_row(spec.kv_rank, spec.rope_dim, element).bytes
                        : spec.latent_size() * element;
}

}  // namespace

int64_t page_bytes(const MlaSpec& spec, DType dtype, int64_t page_tokens) {
  const int64_t latent = page_tokens * latent_row_bytes(spec, dtype);
  return spec.indexer ? latent + page_bytes(*spec.indexer, dtype, page_tokens) : latent;
}

LayerPages make_pages(const MlaSpec& spec, DType dtype, Tensor memory, int64_t num_pages,
                      int64_t page_tokens) {
  LayerPages pages;
  const int64_t width = spec.fp8_cache ? latent_row_bytes(spec, dtype) : spec.latent_size();
  pages.k = Tensor(memory.raw(), spec.fp8_cache ? DType::kU8 : dtype, memory.device(),
                   {num_pages, page_tokens, 1, width});
  if (spec.indexer)
    pages.index_k = make_pages(*spec.indexer, dtype,
                               memory.rows(pages.k.rows.size_bytes(), memory.size_bytes()),
                               num_pages, page_tokens);
  return pages;
}

void project_qkv(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const MlaTape& tape, Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  ops::matmul_forward(ctx, tape.a, normed, w.a);
  // Every tp rank holds whole pages, so with split rows the pages are written after the latent rows
  // are gathered.
  const bool is_split = !batch.tp_rows.empty();
  ops::NormedRows queries;
  if (s.q_rank > 0)
    queries = {own_rows_of(ctx, batch, tape.q_normed), tape.a.columns(0, s.q_rank), w.q_norm};
  ops::latent_rows_forward(ctx, own_rows_of(ctx, batch, tape.latent),
                           tape.a.columns(s.q_rank, s.a_size()), w.kv_norm, eps_of(s), rotary,
                           own_rows_of(ctx, batch, batch.positions),
                           {.pages = is_split ? Tensor{} : pages.k.rows,
                            .slots = batch.slots,
                            .is_fp8 = s.fp8_cache && !is_split},
                           queries);
  if (s.q_rank > 0) exchange_tp_rows(ctx, batch, tape.q_normed);
  const Tensor q_input = s.q_rank > 0 ? tape.q_normed : gather_tp_rows(ctx, batch, normed);
  ops::matmul_forward(ctx, tape.q, q_input, w.q);
  exchange_tp_rows(ctx, batch, tape.latent);
  if (!is_split) return;
  if (s.fp8_cache) {
    ops::round_latent_rows(ctx, tape.latent, s.kv_rank, pages.k.rows, batch.slots);
  } else if (pages.k.defined()) {
    ops::write_kv_pages(ctx, pages.k.rows, {}, tape.latent.split_last({1, s.latent_size()}), {},
                        batch.slots);
  }
}

void select_keys(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
                 const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
                 const MlaTape& tape, Tensor normed, Tensor selected) {
  select_keys(ctx, *s.indexer, w.indexer, rotary, batch, pages.index_k,
              own_rows_of(ctx, batch, tape.q_normed), normed, selected);
}

void attend(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
            const ops::RotaryTable& rotary, const Batch& batch, const LayerPages& pages,
            const MlaTape& tape) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t tokens = tape.q.dim(0), n = s.num_heads;
  const QueryViews q = split_queries(tape.q, s);
  const Tensor queries = ctx.arena.allocate(tape.q.dtype(), {tokens, n, s.latent_size()});
  const Tensor out = ctx.arena.allocate(tape.q.dtype(), {tokens, n, s.kv_rank});
  ops::latent_queries_forward(ctx, queries, q.nope, w.k_weight, q.rope, rotary, batch.positions);
  ops::CacheRows keys = pages.k;
  if (!keys.defined()) {
    const Tensor rows = batch.context.page_rows.defined()
                            ? gather_context_pages(ctx, batch.context, tape.latent)
                            : seen_latent(ctx, batch, tape);
    keys = rows.split_last({1, s.latent_size()});
  }
  ops::attention_forward(ctx, out, tape.lse, queries, keys, keys, batch.attention, scale_of(s));
  ops::head_matmul_forward(ctx, heads(tape.attention, s, s.value_dim), out, w.v_weight);
}

void project_out(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
                 const Batch& batch, const MlaTape& tape, Tensor o) {
  row_parallel_forward(ctx, batch, o, tape.attention, w.o, s.leaves);
}

void backward(const ops::Context& ctx, const MlaSpec& s, const MlaParameters<Tensor>& w,
              const MlaParameters<Tensor>& g, const ops::RotaryTable& rotary, const Batch& batch,
              const MlaTape& tape, Tensor own_dout, Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor dout = gather_tp_rows(ctx, batch, own_dout);
  const auto own_rows = [&](int64_t width) {
    return ctx.arena.allocate(dout.dtype(), {own_dout.dim(0), width});
  };
  const auto rows = [&](int64_t width) {
    return ctx.arena.allocate(dout.dtype(), {dout.dim(0), width});
  };
  const Tensor dattention = rows(s.num_heads * s.value_dim);
  const Tensor dq = rows(s.num_heads * s.head_dim());
  const Tensor dlatent_normed = own_rows(s.kv_rank), drope = own_rows(s.rope_dim);
  const Tensor da = own_rows(s.a_size());
  const Tensor latent_terms = allocate_partial(ctx, batch, dlatent_normed);
  const Tensor rope_terms = allocate_partial(ctx, batch, drope);
  ops::matmul_backward_weight(ctx, g.o.weight, on_first_tp_rank(ctx, g.o.bias), dout,
                              tape.attention, accumulate);
  attention_next();
  ops::matmul_backward_input(ctx, dattention, dout, w.o.weight, false);
  attention_backward(ctx, s, w, g, rotary, batch, tape, dattention, accumulate,
                     {dq, latent_terms, rope_terms});
  scatter_tp_sum(ctx, batch, dlatent_normed, latent_terms);
  scatter_tp_sum(ctx, batch, drope, rope_terms);

  const LatentViews raw = split_latent(tape.a, s), draw = split_latent(da, s);
  ops::rms_norm_backward(ctx, draw.normed, g.kv_norm, dlatent_normed, raw.normed, w.kv_norm,
                         eps_of(s), false);
  ops::copy_head_columns(ctx, draw.rope, 0, drope.split_last({1, s.rope_dim}), 0, s.rope_dim);
  if (s.q_rank > 0) {
    const Tensor dq_normed = own_rows(s.q_rank);
    const Tensor terms = allocate_partial(ctx, batch, dq_normed);
    ops::matmul_backward_weight(ctx, g.q.weight, {}, dq, tape.q_normed, accumulate);
    ops::matmul_backward_input(ctx, terms, dq, w.q.weight, false);
    scatter_tp_sum(ctx, batch, dq_normed, terms);
    ops::rms_norm_backward(ctx, da.columns(0, s.q_rank), g.q_norm, dq_normed,
                           tape.a.columns(0, s.q_rank), w.q_norm, eps_of(s), false);
  } else {
    const Tensor terms = allocate_partial(ctx, batch, dnormed);
    ops::matmul_backward_weight(ctx, g.q.weight, {}, dq, gather_tp_rows(ctx, batch, normed),
                                accumulate);
    ops::matmul_backward_input(ctx, terms, dq, w.q.weight, false);
    scatter_tp_sum(ctx, batch, dnormed, terms);
  }
  ops::matmul_backward_weight(ctx, g.a.weight, g.a.bias, da, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, da, w.a.weight, s.q_rank == 0);
}

}  // namespace slimexx::model

// Final norm, vocabulary projection and log-probabilities, in chunks of rows.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/base/error.h"
#include "slimexx/model/blocks/head.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

// The fused product and softmax needs the whole vocabulary in one leaf.
bool is_fused(const ops::Context& ctx, const HeadSpec& spec, const HeadRows& rows) {
  return ops::fuses_lm_head(ctx.device()) && rows.tp_ranges.empty() && spec.leaves == 1;
}

// [R,V] f32. On a GPU the row stride is a multiple of 16 bytes, for vectorised loads.
Tensor allocate_logits(const ops::Context& ctx, int64_t num_rows, int64_t vocabulary) {
  const int64_t stride = ctx.device().is_cpu() ? vocabulary : (vocabulary + 3) / 4 * 4;
  return ctx.arena.allocate(DType::kF32, {num_rows, stride}).columns(0, vocabulary);
}

// For scoring and training. Sampling normalises the same product in the same way (N9).
void compute_logits(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                    Tensor hidden, bool is_sharded, float temperature, Tensor logits, Tensor lse) {
  ops::matmul_forward(ctx, logits, hidden, {w.lm_head});
  const int64_t rows = lse.dim(0), ranks = is_sharded ? ctx.groups.tp.size() : 1;
  const int64_t leaves = ranks * spec.leaves, width = logits.dim(1) / spec.leaves;
  if (leaves == 1) return ops::normalize_logits(ctx, logits, lse, temperature);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor all = ctx.arena.allocate(DType::kF32, {leaves, rows});
  std::vector<dist::Range> ranges;  // leaves of each rank
  for (int64_t rank = 0; rank < ranks; ++rank)
    ranges.push_back({rank * spec.leaves, (rank + 1) * spec.leaves});
  const int64_t first = is_sharded ? ctx.groups.tp.rank() * spec.leaves : 0;
  for (int64_t l = 0; l < spec.leaves; ++l)
    ops::normalize_logits(ctx, logits.columns(l * width, (l + 1) * width),
                          all.rows(first + l, first + l + 1).reshaped({rows}), temperature);
  if (is_sharded) ctx.groups.tp.all_gather_ranges(ctx.stream, all, ranges);
  ops::merge_lse(ctx, lse, all);
}

// This rank's part of the entropies: the sum over its leaves, in their order.
void sum_leaf_entropies(const ops::Context& ctx, const HeadSpec& spec, Tensor logits, Tensor lse,
                        Tensor entropies) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t rows = lse.dim(0), width = logits.dim(1) / spec.leaves;
  const Tensor no_targets = ctx.arena.allocate(DType::kI32, {rows});
  const Tensor unused = ctx.arena.allocate(DType::kF32, {rows});
  const Tensor term = ctx.arena.allocate(DType::kF32, {rows});
  ops::fill_zero(ctx, no_targets);
  for (int64_t l = 0; l < spec.leaves; ++l) {
    ops::gather_log_probs(ctx, unused, l == 0 ? entropies : term,
                          logits.columns(l * width, (l + 1) * width), lse, no_targets);
    if (l > 0) ops::add(ctx, entropies, entropies, term);
  }
}

// In place: the sum over tp ranks, in rank order. The scratch has the same size on all of them, so
// that their memory plans agree.
void sum_over_tp(const ops::Context& ctx, Tensor rows) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t ranks = ctx.groups.tp.size(), n = rows.dim(0);
  const Tensor terms = ctx.arena.allocate(DType::kF32, {ranks * n});
  ctx.groups.tp.all_gather(ctx.stream, terms, rows);
  ops::copy(ctx, rows, terms.rows(0, n));
  for (int64_t r = 1; r < ranks; ++r) ops::add(ctx, rows, rows, terms.rows(r * n, (r + 1) * n));
}

// Reads log_probs [R] and entropies [R] from normalised logits.
void read_log_probs(const ops::Context& ctx, const HeadSpec& spec, bool is_sharded, Tensor logits,
                    Tensor lse, Tensor targets, Tensor log_probs, Tensor entropies) {
  const bool has_leaves = entropies.defined() && spec.leaves > 1;
  ops::gather_log_probs(ctx, log_probs, has_leaves ? Tensor{} : entropies, logits, lse, targets);
  if (has_leaves) sum_leaf_entropies(ctx, spec, logits, lse, entropies);
  if (!is_sharded) return;
  // Ranks that do not own a row's target contribute 0 to its log-prob.
  for (const Tensor& rows : {log_probs, entropies})
    if (rows.defined()) sum_over_tp(ctx, rows);
}

struct LogitGradients {
  Tensor hidden;                                           // [R,H]
  Tensor logits;                                           // [R,V], undefined if they were not kept
  Tensor lse, targets, entropies, dlog_probs, dentropies;  // [R]
};

// dlogits[R,V], from the arena or over the kept logits.
Tensor fused_logit_gradients(const ops::Context& ctx, const HeadParameters<Tensor>& w,
                             const LogitGradients& g, float temperature) {
  const int64_t num_rows = g.hidden.dim(0), vocabulary = w.lm_head.dim(0);
  const tensor::DType compute = g.hidden.dtype();
  if (g.logits.defined()) {
    const Tensor rows(g.logits.raw(), compute, ctx.device(), {num_rows, 2 * vocabulary});
    const Tensor dlogits = rows.columns(0, vocabulary);  // the first half of each f32 row
    ops::lm_head_kept_backward(ctx, dlogits, g.logits, g.lse, g.targets, g.entropies, g.dlog_probs,
                               g.dentropies, temperature);
    return dlogits;
  }
  const Tensor dlogits = ctx.arena.allocate(compute, {num_rows, vocabulary});
  ops::lm_head_backward_logits(ctx, dlogits, g.hidden, w.lm_head, g.lse, g.targets, g.entropies,
                               g.dlog_probs, g.dentropies, temperature);
  return dlogits;
}

Tensor logit_gradients(const ops::Context& ctx, const HeadParameters<Tensor>& w,
                       const LogitGradients& g, float temperature) {
  const int64_t num_rows = g.hidden.dim(0), vocabulary = w.lm_head.dim(0);
  const bool is_f32 = g.hidden.dtype() == DType::kF32;
  Tensor logits = g.logits, dlogits;
  if (!is_f32) dlogits = ctx.arena.allocate(g.hidden.dtype(), {num_rows, vocabulary});
  if (!logits.defined()) {
    logits = allocate_logits(ctx, num_rows, vocabulary);
    // Covers only this rank's leaf and is not used: g.lse covers the whole row.
    const Tensor own_lse = ctx.arena.allocate(DType::kF32, {num_rows});
    ops::matmul_forward(ctx, logits, g.hidden, {w.lm_head});
    ops::normalize_logits(ctx, logits, own_lse, temperature);
  }
  if (is_f32) dlogits = logits;
  ops::log_probs_backward(ctx, dlogits, logits, g.lse, g.targets, g.entropies, g.dlog_probs,
                          g.dentropies, temperature);
  return dlogits;
}

Tensor rows_or_undefined(Tensor t, int64_t begin, int64_t end) {
  return t.defined() ? t.rows(begin, end) : t;
}

int64_t count_chunk_rows(int64_t vocabulary, const HeadOptions& options, DType dtype) {
  return std::max<int64_t>(1, options.max_logits_bytes / (vocabulary * tensor::dtype_bytes(dtype)));
}

}  // namespace

HeadParameters<ParameterId> declare(ParameterList& list, const HeadSpec& spec,
                                    ParameterId tied_to) {
  HeadParameters<ParameterId> p;
  p.final_norm = list.add_norm("final_norm.weight", "model.norm.weight", spec.hidden_size);
  p.lm_head = tied_to;
  if (tied_to == kNoParameter)
    p.lm_head = list.add_weight("lm_head.weight", {{"lm_head.weight", spec.vocab_size}},
                                spec.hidden_size, {{.axis = 0}});
  return p;
}

void check_device_sizes(const HeadSpec& spec, tensor::Device device) {
  if (device.is_cpu()) return;
  if (spec.leaves > 1 && spec.vocab_size / spec.leaves % 4 != 0)
    throw Error(ErrorCode::kInput,
                fmt::format("a vocabulary of {} tokens in {} leaves: softmax supports leaves of "
                            "multiples of 4 on {}",
                            spec.vocab_size, spec.leaves, tensor::to_string(device)),
                "use --device cpu", "vocab_size");
  if (spec.vocab_size <= ops::kMaxVocabulary) return;
  throw Error(ErrorCode::kInput,
              fmt::format("a vocabulary of {} tokens: sampling supports up to {} on {}",
                          spec.vocab_size, ops::kMaxVocabulary, tensor::to_string(device)),
              "use --device cpu", "vocab_size");
}

double forward_flops(const HeadSpec& spec, int64_t num_tokens) {
  return 2 * static_cast<double>(num_tokens) * static_cast<double>(spec.hidden_size) *
         static_cast<double>(spec.vocab_size);
}

int64_t head_chunk_rows(const HeadSpec& spec, const HeadOptions& options) {
  return count_chunk_rows(spec.vocab_size, options, DType::kF32);
}

void head_forward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                  Tensor x, const HeadRows& rows, const HeadOptions& options, Tensor log_probs,
                  Tensor entropies, HeadTape* tape) {
  const int64_t num_rows = rows.targets.dim(0), vocabulary = w.lm_head.dim(0);
  const int64_t chunk = count_chunk_rows(vocabulary, options, DType::kF32);
  const bool is_sharded = !rows.tp_ranges.empty();
  HeadTape local;
  HeadTape& t = tape != nullptr ? *tape : local;
  t.x = ctx.arena.allocate(x.dtype(), {rows.rows.dim(0), spec.hidden_size});
  t.hidden = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  t.lse = ctx.arena.allocate(DType::kF32, {num_rows});
  t.logits = {};
  Tensor own = t.hidden;
  if (is_sharded) {
    const dist::Range& range = rows.tp_ranges[static_cast<size_t>(ctx.groups.tp.rank())];
    own = t.hidden.rows(range.begin, range.end);
  }
  ops::gather_rows(ctx, t.x, x, rows.rows);
  ops::rms_norm_forward(ctx, own, t.x, w.final_norm, static_cast<float>(spec.rms_norm_eps));
  if (is_sharded) ctx.groups.tp.all_gather_ranges(ctx.stream, t.hidden, rows.tp_ranges);
  const bool fused = is_fused(ctx, spec, rows);
  const bool keep_logits =
      tape != nullptr && num_rows <= chunk && (!fused || ops::can_keep_logits(w.lm_head));
  if (keep_logits)
    t.logits = fused ? ctx.arena.allocate(DType::kF32, {num_rows, vocabulary})
                     : allocate_logits(ctx, num_rows, vocabulary);
  if (fused) {
    ops::lm_head_forward(ctx, log_probs, entropies, t.lse, t.hidden, w.lm_head, rows.targets,
                         options.temperature, t.logits);
    return;
  }
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope scope(ctx.arena);
    const Tensor logits = keep_logits ? t.logits : allocate_logits(ctx, end - begin, vocabulary);
    const Tensor lse = t.lse.rows(begin, end);
    compute_logits(ctx, spec, w, t.hidden.rows(begin, end), is_sharded, options.temperature, logits,
                   lse);
    read_log_probs(ctx, spec, is_sharded, logits, lse, rows.targets.rows(begin, end),
                   log_probs.rows(begin, end), rows_or_undefined(entropies, begin, end));
  }
}

void head_backward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   const HeadParameters<Tensor>& g, const HeadRows& rows,
                   const HeadOptions& options, const HeadTape& tape, Tensor entropies,
                   Tensor dlog_probs, Tensor dentropies, Tensor dx, bool accumulate) {
  const int64_t num_rows = rows.targets.dim(0);
  const bool fused = is_fused(ctx, spec, rows);
  // The fused path with recomputed logits holds only their gradient, in the compute dtype.
  const int64_t chunk =
      count_chunk_rows(w.lm_head.dim(0), options, fused ? tape.hidden.dtype() : DType::kF32);
  ArenaScope scope(ctx.arena);
  if (!dentropies.defined()) entropies = {};
  const Tensor dhidden = ctx.arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  const Tensor dselected = ctx.arena.allocate(dx.dtype(), {rows.rows.dim(0), spec.hidden_size});
  const bool is_trained = g.lm_head.defined();
  if (num_rows == 0 && !accumulate && is_trained) ops::fill_zero(ctx, g.lm_head);
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope chunk_scope(ctx.arena);
    const LogitGradients row{.hidden = tape.hidden.rows(begin, end),
                             .logits = tape.logits,
                             .lse = tape.lse.rows(begin, end),
                             .targets = rows.targets.rows(begin, end),
                             .entropies = rows_or_undefined(entropies, begin, end),
                             .dlog_probs = dlog_probs.rows(begin, end),
                             .dentropies = rows_or_undefined(dentropies, begin, end)};
    const Tensor dlogits = fused ? fused_logit_gradients(ctx, w, row, options.temperature)
                                 : logit_gradients(ctx, w, row, options.temperature);
    ops::matmul_backward_input(ctx, dhidden.rows(begin, end), dlogits, w.lm_head, false);
    if (is_trained)
      ops::matmul_backward_weight(ctx, g.lm_head, {}, dlogits, row.hidden, begin > 0 || accumulate);
  }
  Tensor own = dhidden;
  if (!rows.tp_ranges.empty()) {
    own = ctx.arena.allocate(dx.dtype(), {rows.rows.dim(0), spec.hidden_size});
    scatter_tp_sum(ctx, rows.tp_ranges, own, dhidden);
  }
  ops::rms_norm_backward(ctx, dselected, g.final_norm, own, tape.x, w.final_norm,
                         static_cast<float>(spec.rms_norm_eps), false);
  ops::fill_zero(ctx, dx);
  ops::scatter_add_rows(ctx, dx, dselected, rows.rows);
}

namespace {

// Computes this rank's leaf of the logits and all-gathers all leaves into logits[R,V].
void gather_leaf_logits(const ops::Context& ctx, Tensor logits, Tensor hidden, Tensor leaf_weight) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t ranks = ctx.groups.tp.size(), rows = logits.dim(0), width = leaf_weight.dim(0);
  const Tensor leaves = ctx.arena.allocate(DType::kF32, {ranks, rows * width});
  const auto leaf = [&](int64_t r) { return leaves.rows(r, r + 1).reshaped({rows, width}); };
  std::vector<dist::Range> by_rank;
  for (int64_t r = 0; r < ranks; ++r) by_rank.push_back({r, r + 1});
  ops::matmul_forward(ctx, leaf(ctx.groups.tp.rank()), hidden, {leaf_weight});
  ctx.groups.tp.all_gather_ranges(ctx.stream, leaves, by_rank);
  for (int64_t r = 0; r < ranks; ++r)
    ops::copy_rows(ctx, logits.columns(r * width, (r + 1) * width), leaf(r));
}

}  // namespace

Tensor head_logits(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   Tensor x, Tensor rows) {
  const int64_t num_rows = rows.dim(0);
  const Tensor logits = allocate_logits(ctx, num_rows, spec.vocab_size);
  ArenaScope scope(ctx.arena);
  const Tensor selected = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  const Tensor hidden = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  ops::gather_rows(ctx, selected, x, rows);
  ops::rms_norm_forward(ctx, hidden, selected, w.final_norm, static_cast<float>(spec.rms_norm_eps));
  if (ctx.groups.tp.size() > 1)
    gather_leaf_logits(ctx, logits, hidden, w.lm_head);
  else
    ops::matmul_forward(ctx, logits, hidden, {w.lm_head});
  return logits;
}

}  // namespace slimexx::model

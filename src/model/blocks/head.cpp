// Final norm, vocabulary projection and log-probabilities, in chunks of rows.
#include <fmt/format.h>

#include <algorithm>

#include "model/parameter_list.h"
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

// Scoring and training; sampling normalises the same product in the same way (N9).
void compute_logits(const ops::Context& ctx, const HeadParameters<Tensor>& w, Tensor hidden,
                    float temperature, Tensor logits, Tensor lse) {
  ops::matmul_forward(ctx, logits, hidden, w.lm_head, {});
  ops::normalize_logits(ctx, logits, lse, temperature);
}

struct LogitGradients {
  Tensor hidden;                                           // [R,H]
  Tensor logits;                                           // [R,V], undefined if they were not kept
  Tensor lse, targets, entropies, dlog_probs, dentropies;  // [R]
};

// dlogits[R,V], allocated from the arena or in the place of the logits.
Tensor logit_gradients(const ops::Context& ctx, const HeadParameters<Tensor>& w,
                       const LogitGradients& g, float temperature) {
  const int64_t num_rows = g.hidden.dim(0), vocabulary = w.lm_head.dim(0);
  const tensor::DType compute = g.hidden.dtype();
  if (ops::fuses_lm_head(ctx.device()) && g.logits.defined()) {
    const Tensor rows(g.logits.raw(), compute, ctx.device(), {num_rows, 2 * vocabulary});
    const Tensor dlogits = rows.columns(0, vocabulary);  // half as long, row for row
    ops::lm_head_kept_backward(ctx, dlogits, g.logits, g.lse, g.targets, g.entropies, g.dlog_probs,
                               g.dentropies, temperature);
    return dlogits;
  }
  if (ops::fuses_lm_head(ctx.device())) {
    const Tensor dlogits = ctx.arena.allocate(compute, {num_rows, vocabulary});
    ops::lm_head_backward_logits(ctx, dlogits, g.hidden, w.lm_head, g.lse, g.targets, g.entropies,
                                 g.dlog_probs, g.dentropies, temperature);
    return dlogits;
  }
  Tensor logits = g.logits;
  if (!logits.defined()) {
    logits = ctx.arena.allocate(DType::kF32, {num_rows, vocabulary});
    compute_logits(ctx, w, g.hidden, temperature, logits, g.lse);
  }
  ops::log_probs_backward(ctx, logits, logits, g.lse, g.targets, g.entropies, g.dlog_probs,
                          g.dentropies, temperature);
  return logits;
}

Tensor rows_or_undefined(Tensor t, int64_t begin, int64_t end) {
  return t.defined() ? t.rows(begin, end) : t;
}

int64_t count_chunk_rows(const HeadSpec& spec, const HeadOptions& options, DType dtype) {
  return std::max<int64_t>(
      1, options.max_logits_bytes / (spec.vocab_size * tensor::dtype_bytes(dtype)));
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
  if (device.is_cpu() || spec.vocab_size <= ops::kMaxVocabulary) return;
  throw Error(ErrorCode::kInput,
              fmt::format("a vocabulary of {} tokens; sampling serves up to {} on {}",
                          spec.vocab_size, ops::kMaxVocabulary, tensor::to_string(device)),
              "use --device cpu", "vocab_size");
}

double forward_flops(const HeadSpec& spec, int64_t num_tokens) {
  return 2 * static_cast<double>(num_tokens) * static_cast<double>(spec.hidden_size) *
         static_cast<double>(spec.vocab_size);
}

int64_t head_chunk_rows(const HeadSpec& spec, const HeadOptions& options) {
  return count_chunk_rows(spec, options, DType::kF32);
}

void head_forward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                  Tensor x, Tensor rows, Tensor targets, const HeadOptions& options,
                  Tensor log_probs, Tensor entropies, HeadTape* tape) {
  const int64_t num_rows = rows.dim(0), chunk = head_chunk_rows(spec, options);
  HeadTape local;
  HeadTape& t = tape != nullptr ? *tape : local;
  t.x = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  t.hidden = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  t.lse = ctx.arena.allocate(DType::kF32, {num_rows});
  t.logits = {};
  ops::gather_rows(ctx, t.x, x, rows);
  ops::rms_norm_forward(ctx, t.hidden, t.x, w.final_norm, static_cast<float>(spec.rms_norm_eps));
  const bool is_fused = ops::fuses_lm_head(ctx.device());
  const bool keep_logits =
      tape != nullptr && num_rows <= chunk && (!is_fused || ops::can_keep_logits(w.lm_head));
  if (keep_logits) t.logits = ctx.arena.allocate(DType::kF32, {num_rows, spec.vocab_size});
  if (is_fused) {
    ops::lm_head_forward(ctx, log_probs, entropies, t.lse, t.hidden, w.lm_head, targets,
                         options.temperature, t.logits);
    return;
  }
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope scope(ctx.arena);
    const Tensor logits =
        keep_logits ? t.logits : ctx.arena.allocate(DType::kF32, {end - begin, spec.vocab_size});
    const Tensor lse = t.lse.rows(begin, end);
    compute_logits(ctx, w, t.hidden.rows(begin, end), options.temperature, logits, lse);
    ops::gather_log_probs(ctx, log_probs.rows(begin, end), rows_or_undefined(entropies, begin, end),
                          logits, lse, targets.rows(begin, end));
  }
}

void head_backward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   const HeadParameters<Tensor>& g, Tensor rows, Tensor targets,
                   const HeadOptions& options, const HeadTape& tape, Tensor entropies,
                   Tensor dlog_probs, Tensor dentropies, Tensor dx, bool accumulate) {
  const int64_t num_rows = rows.dim(0);
  // Where the logits are not made again, their gradient is all that is held.
  const int64_t chunk = count_chunk_rows(
      spec, options, ops::fuses_lm_head(ctx.device()) ? tape.hidden.dtype() : DType::kF32);
  ArenaScope scope(ctx.arena);
  if (!dentropies.defined()) entropies = {};
  const Tensor dhidden = ctx.arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  const Tensor dselected = ctx.arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  const bool is_trained = g.lm_head.defined();
  if (num_rows == 0 && !accumulate && is_trained) ops::fill_zero(ctx, g.lm_head);
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope chunk_scope(ctx.arena);
    const LogitGradients row{.hidden = tape.hidden.rows(begin, end),
                             .logits = tape.logits,
                             .lse = tape.lse.rows(begin, end),
                             .targets = targets.rows(begin, end),
                             .entropies = rows_or_undefined(entropies, begin, end),
                             .dlog_probs = dlog_probs.rows(begin, end),
                             .dentropies = rows_or_undefined(dentropies, begin, end)};
    const Tensor dlogits = logit_gradients(ctx, w, row, options.temperature);
    ops::matmul_backward_input(ctx, dhidden.rows(begin, end), dlogits, w.lm_head, false);
    if (is_trained)
      ops::matmul_backward_weight(ctx, g.lm_head, {}, dlogits, row.hidden, begin > 0 || accumulate);
  }
  ops::rms_norm_backward(ctx, dselected, g.final_norm, dhidden, tape.x, w.final_norm,
                         static_cast<float>(spec.rms_norm_eps), false);
  ops::fill_zero(ctx, dx);
  ops::scatter_add_rows(ctx, dx, dselected, rows);
}

Tensor head_logits(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   Tensor x, Tensor rows) {
  const int64_t num_rows = rows.dim(0);
  // Kernels read rows in steps of 16 bytes.
  const int64_t stride = ctx.device().is_cpu() ? spec.vocab_size : (spec.vocab_size + 3) / 4 * 4;
  const Tensor logits =
      ctx.arena.allocate(DType::kF32, {num_rows, stride}).columns(0, spec.vocab_size);
  ArenaScope scope(ctx.arena);
  const Tensor selected = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  const Tensor hidden = ctx.arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  ops::gather_rows(ctx, selected, x, rows);
  ops::rms_norm_forward(ctx, hidden, selected, w.final_norm, static_cast<float>(spec.rms_norm_eps));
  ops::matmul_forward(ctx, logits, hidden, w.lm_head, {});
  return logits;
}

}  // namespace slimexx::model

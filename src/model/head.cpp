// Final norm, vocabulary projection and log-probabilities, in chunks of rows.
#include <algorithm>

#include "slimexx/model/transformer.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;

// Scoring and training; sampling normalises the same product in the same way (N9).
void compute_logits(const ops::Context& ctx, const ModelParameters& weights, Tensor hidden,
                    float temperature, Tensor logits, Tensor lse) {
  ops::matmul_forward(ctx, logits, hidden, weights.lm_head, {});
  ops::normalize_logits(ctx, logits, lse, temperature);
}

struct LogitGradients {
  Tensor hidden;                                           // [R,H]
  Tensor logits;                                           // [R,V], undefined if they were not kept
  Tensor lse, targets, entropies, dlog_probs, dentropies;  // [R]
};

// dlogits[R,V], allocated from the arena or in the place of the logits.
Tensor logit_gradients(const ops::Context& ctx, const ModelParameters& weights,
                       const LogitGradients& g, float temperature) {
  const int64_t num_rows = g.hidden.dim(0), vocabulary = weights.lm_head.dim(0);
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
    ops::lm_head_backward_logits(ctx, dlogits, g.hidden, weights.lm_head, g.lse, g.targets,
                                 g.entropies, g.dlog_probs, g.dentropies, temperature);
    return dlogits;
  }
  Tensor logits = g.logits;
  if (!logits.defined()) {
    logits = ctx.arena.allocate(DType::kF32, {num_rows, vocabulary});
    compute_logits(ctx, weights, g.hidden, temperature, logits, g.lse);
  }
  ops::log_probs_backward(ctx, logits, logits, g.lse, g.targets, g.entropies, g.dlog_probs,
                          g.dentropies, temperature);
  return logits;
}

Tensor rows_or_undefined(Tensor t, int64_t begin, int64_t end) {
  return t.defined() ? t.rows(begin, end) : t;
}

int64_t count_chunk_rows(const ModelSpec& spec, const HeadOptions& options, DType dtype) {
  return std::max<int64_t>(
      1, options.max_logits_bytes / (spec.vocab_size * tensor::dtype_bytes(dtype)));
}

}  // namespace

int64_t head_chunk_rows(const ModelSpec& spec, const HeadOptions& options) {
  return count_chunk_rows(spec, options, DType::kF32);
}

void head_forward(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
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
  ops::rms_norm_forward(ctx, t.hidden, t.x, weights.final_norm,
                        static_cast<float>(spec.rms_norm_eps));
  const bool is_fused = ops::fuses_lm_head(ctx.device());
  const bool keep_logits =
      tape != nullptr && num_rows <= chunk && (!is_fused || ops::can_keep_logits(weights.lm_head));
  if (keep_logits) t.logits = ctx.arena.allocate(DType::kF32, {num_rows, spec.vocab_size});
  if (is_fused) {
    ops::lm_head_forward(ctx, log_probs, entropies, t.lse, t.hidden, weights.lm_head, targets,
                         options.temperature, t.logits);
    return;
  }
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope scope(ctx.arena);
    const Tensor logits =
        keep_logits ? t.logits : ctx.arena.allocate(DType::kF32, {end - begin, spec.vocab_size});
    const Tensor lse = t.lse.rows(begin, end);
    compute_logits(ctx, weights, t.hidden.rows(begin, end), options.temperature, logits, lse);
    ops::gather_log_probs(ctx, log_probs.rows(begin, end), rows_or_undefined(entropies, begin, end),
                          logits, lse, targets.rows(begin, end));
  }
}

void head_backward(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
                   const ModelParameters& gradients, Tensor rows, Tensor targets,
                   const HeadOptions& options, const HeadTape& tape, Tensor entropies,
                   Tensor dlog_probs, Tensor dentropies, Tensor dx) {
  const int64_t num_rows = rows.dim(0);
  // Where the logits are not made again, their gradient is all that is held.
  const int64_t chunk = count_chunk_rows(
      spec, options, ops::fuses_lm_head(ctx.device()) ? tape.hidden.dtype() : DType::kF32);
  ArenaScope scope(ctx.arena);
  if (!dentropies.defined()) entropies = {};
  const Tensor dhidden = ctx.arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  const Tensor dselected = ctx.arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope chunk_scope(ctx.arena);
    const LogitGradients g{.hidden = tape.hidden.rows(begin, end),
                           .logits = tape.logits,
                           .lse = tape.lse.rows(begin, end),
                           .targets = targets.rows(begin, end),
                           .entropies = rows_or_undefined(entropies, begin, end),
                           .dlog_probs = dlog_probs.rows(begin, end),
                           .dentropies = rows_or_undefined(dentropies, begin, end)};
    const Tensor dlogits = logit_gradients(ctx, weights, g, options.temperature);
    ops::matmul_backward_input(ctx, dhidden.rows(begin, end), dlogits, weights.lm_head, false);
    ops::matmul_backward_weight(ctx, gradients.lm_head, {}, dlogits, g.hidden,
                                begin > 0 || !gradients.is_fresh);
  }
  ops::rms_norm_backward(ctx, dselected, gradients.final_norm, dhidden, tape.x, weights.final_norm,
                         static_cast<float>(spec.rms_norm_eps), false);
  ops::fill_zero(ctx, dx);
  ops::scatter_add_rows(ctx, dx, dselected, rows);
}

Tensor head_logits(const ops::Context& ctx, const ModelSpec& spec, const ModelParameters& weights,
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
  ops::rms_norm_forward(ctx, hidden, selected, weights.final_norm,
                        static_cast<float>(spec.rms_norm_eps));
  ops::matmul_forward(ctx, logits, hidden, weights.lm_head, {});
  return logits;
}

}  // namespace slimexx::model

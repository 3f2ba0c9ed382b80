// Final norm, vocabulary projection and log-probabilities, in chunks of rows.
#include <algorithm>

#include "slimexx/model/transformer.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;

// Scoring and training; sampling normalises the same product in the same way (N9).
void compute_logits(Stream stream, const ModelParameters& weights, Tensor hidden, float temperature,
                    Tensor logits, Tensor lse) {
  ops::matmul_forward(stream, logits, hidden, weights.lm_head, {});
  ops::normalize_logits(stream, logits, lse, temperature);
}

Tensor rows_or_undefined(Tensor t, int64_t begin, int64_t end) {
  return t.defined() ? t.rows(begin, end) : t;
}

}  // namespace

int64_t head_chunk_rows(const ModelSpec& spec, const HeadOptions& options) {
  return std::max<int64_t>(1, options.max_logits_bytes / (spec.vocab_size * 4));
}

void head_forward(Stream stream, Arena& arena, const ModelSpec& spec,
                  const ModelParameters& weights, Tensor x, Tensor rows, Tensor targets,
                  const HeadOptions& options, Tensor log_probs, Tensor entropies, HeadTape* tape) {
  const int64_t num_rows = rows.dim(0), chunk = head_chunk_rows(spec, options);
  stream = stream.with_scratch(arena);
  HeadTape local;
  HeadTape& t = tape != nullptr ? *tape : local;
  t.x = arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  t.hidden = arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  t.lse = arena.allocate(DType::kF32, {num_rows});
  const bool keep_logits = tape != nullptr && num_rows <= chunk;
  t.logits = keep_logits ? arena.allocate(DType::kF32, {num_rows, spec.vocab_size}) : Tensor{};
  ops::gather_rows(stream, t.x, x, rows);
  ops::rms_norm_forward(stream, t.hidden, t.x, weights.final_norm,
                        static_cast<float>(spec.rms_norm_eps));
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope scope(arena);
    const Tensor logits =
        keep_logits ? t.logits : arena.allocate(DType::kF32, {end - begin, spec.vocab_size});
    const Tensor lse = t.lse.rows(begin, end);
    compute_logits(stream, weights, t.hidden.rows(begin, end), options.temperature, logits, lse);
    ops::gather_log_probs(stream, log_probs.rows(begin, end),
                          rows_or_undefined(entropies, begin, end), logits, lse,
                          targets.rows(begin, end));
  }
}

void head_backward(Stream stream, Arena& arena, const ModelSpec& spec,
                   const ModelParameters& weights, const ModelParameters& gradients, Tensor rows,
                   Tensor targets, const HeadOptions& options, const HeadTape& tape,
                   Tensor entropies, Tensor dlog_probs, Tensor dentropies, Tensor dx) {
  const int64_t num_rows = rows.dim(0), chunk = head_chunk_rows(spec, options);
  stream = stream.with_scratch(arena);
  ArenaScope scope(arena);
  if (!dentropies.defined()) entropies = {};
  const Tensor dhidden = arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  const Tensor dselected = arena.allocate(dx.dtype(), {num_rows, spec.hidden_size});
  for (int64_t begin = 0; begin < num_rows; begin += chunk) {
    const int64_t end = std::min(num_rows, begin + chunk);
    ArenaScope chunk_scope(arena);
    Tensor logits = tape.logits;
    const Tensor lse = tape.lse.rows(begin, end);
    if (!logits.defined()) {
      logits = arena.allocate(DType::kF32, {end - begin, spec.vocab_size});
      compute_logits(stream, weights, tape.hidden.rows(begin, end), options.temperature, logits,
                     lse);
    }
    const Tensor dlogits = dx.dtype() == DType::kF32
                               ? logits
                               : arena.allocate(dx.dtype(), {end - begin, spec.vocab_size});
    ops::log_probs_backward(stream, dlogits, logits, lse, targets.rows(begin, end),
                            rows_or_undefined(entropies, begin, end), dlog_probs.rows(begin, end),
                            rows_or_undefined(dentropies, begin, end), options.temperature);
    ops::matmul_backward_input(stream, dhidden.rows(begin, end), dlogits, weights.lm_head, false);
    ops::matmul_backward_weight(stream, gradients.lm_head, {}, dlogits,
                                tape.hidden.rows(begin, end));
  }
  ops::rms_norm_backward(stream, dselected, gradients.final_norm, dhidden, tape.x,
                         weights.final_norm, static_cast<float>(spec.rms_norm_eps), false);
  ops::fill_zero(stream, dx);
  ops::scatter_add_rows(stream, dx, dselected, rows);
}

Tensor head_logits(Stream stream, Arena& arena, const ModelSpec& spec,
                   const ModelParameters& weights, Tensor x, Tensor rows) {
  const int64_t num_rows = rows.dim(0);
  const Tensor logits = arena.allocate(DType::kF32, {num_rows, spec.vocab_size});
  ArenaScope scope(arena);
  const Tensor selected = arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  const Tensor hidden = arena.allocate(x.dtype(), {num_rows, spec.hidden_size});
  ops::gather_rows(stream, selected, x, rows);
  ops::rms_norm_forward(stream, hidden, selected, weights.final_norm,
                        static_cast<float>(spec.rms_norm_eps));
  ops::matmul_forward(stream, logits, hidden, weights.lm_head, {});
  return logits;
}

}  // namespace slimexx::model

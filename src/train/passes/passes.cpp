#include "train/passes/passes.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::train {

using tensor::DType;
using tensor::Tensor;

namespace {

// All cp ranks compute the loss of every row, because its ratios and means may span a sample.
Tensor gather_loss_rows(const ops::Context& ctx, const Microbatch& m, Tensor own) {
  if (!m.loss_rows.is_sharded()) return own;
  return model::gather_context_values(ctx, m.loss_rows, own);
}

Tensor take_own_rows(const ops::Context& ctx, const Microbatch& m, Tensor all) {
  if (!m.loss_rows.is_sharded() || !all.defined()) return all;
  return model::take_context_values(ctx, m.loss_rows, all);
}

}  // namespace

void start_microbatch(const Pass& p, std::span<const Sample> samples,
                      std::span<const int64_t> indices, InFlight& f) {
  build_microbatch(p.ctx, p.decoder.spec().vocab_size, samples, indices, p.measured, f.microbatch);
  if (!p.decoder.stage().has_embedding) f.input = allocate_rows(p, f);
}

Tensor allocate_rows(const Pass& p, const InFlight& f) {
  return p.ctx.arena.allocate(
      tensor::compute_dtype(p.ctx.device()),
      {model::own_rows(f.microbatch.batch, p.ctx.groups).size(), p.decoder.spec().hidden_size});
}

void run_layers(const Pass& p, InFlight& f, bool keep) {
  f.output =
      p.decoder.forward(p.ctx, p.weights, f.microbatch.batch, keep ? &f.tape : nullptr, f.input);
}

void run_head(const Pass& p, InFlight& f, bool keep) {
  const Microbatch& m = f.microbatch;
  const Tensor log_probs = p.ctx.arena.allocate(DType::kF32, {m.num_own_rows});
  f.own_entropies = p.ctx.arena.allocate(DType::kF32, {m.num_own_rows});
  model::head_forward(p.ctx, p.decoder.local_spec().head(), p.weights.head, f.output, m.head_rows,
                      p.head, log_probs, f.own_entropies, keep ? &f.head_tape : nullptr);
  f.log_probs = gather_loss_rows(p.ctx, m, log_probs);
  f.entropies = gather_loss_rows(p.ctx, m, f.own_entropies);
}

void run_loss(const Pass& p, std::span<const Sample> samples, std::span<const int64_t> indices,
              std::span<const std::vector<float>> weights, const ops::PolicyLossOptions& options,
              Tensor metrics, InFlight& f) {
  const Microbatch& m = f.microbatch;
  const auto rows = [&](std::vector<float> Sample::*field) {
    return upload_rows(p.ctx, m, samples, indices, field);
  };
  std::vector<float> mask, weight;
  for (int64_t index : indices) {
    const auto i = static_cast<size_t>(index);
    mask.insert(mask.end(), samples[i].loss_mask.begin(), samples[i].loss_mask.end());
    weight.insert(weight.end(), weights[i].begin(), weights[i].end());
  }
  ops::PolicyLossRows r{.log_probs = f.log_probs,
                        .entropies = f.entropies,
                        .old_log_probs = rows(&Sample::old_log_probs),
                        .ref_log_probs = rows(&Sample::ref_log_probs),
                        .rollout_log_probs = rows(&Sample::rollout_log_probs),
                        .advantages = rows(&Sample::advantages),
                        .mask = p.ctx.arena.allocate(DType::kF32, {m.num_rows}),
                        .weights = p.ctx.arena.allocate(DType::kF32, {m.num_rows}),
                        .cu_rows = m.cu_rows,
                        .device_cu_rows = m.device_cu_rows};
  tensor::upload(p.ctx.stream, r.mask, mask.data());
  tensor::upload(p.ctx.stream, r.weights, weight.data());
  const Tensor dlog_probs = p.ctx.arena.allocate(DType::kF32, {m.num_rows});
  const Tensor dentropies =
      options.entropy_coef != 0 ? p.ctx.arena.allocate(DType::kF32, {m.num_rows}) : Tensor{};
  ops::policy_loss(p.ctx, dlog_probs, dentropies, metrics, r, options);
  f.dlog_probs = take_own_rows(p.ctx, m, dlog_probs);
  f.dentropies = take_own_rows(p.ctx, m, dentropies);
}

void run_backward(const Pass& p, const model::ModelParameters& gradients, InFlight& f,
                  bool accumulate, const StageHooks& hooks, const model::RouterBalances& routers,
                  ops::DeferredProducts* deferred) {
  const Microbatch& m = f.microbatch;
  const model::ModelSpec& spec = p.decoder.spec();
  if (p.decoder.stage().has_head) {
    f.dx = allocate_rows(p, f);
    model::head_backward(p.ctx, p.decoder.local_spec().head(), p.weights.head, gradients.head,
                         m.head_rows, p.head, f.head_tape, f.own_entropies, f.dlog_probs,
                         f.dentropies, f.dx, accumulate);
    hooks.stage_done(0);
  }
  ops::Context ctx = p.ctx;
  ctx.deferred = deferred;
  p.decoder.backward(
      ctx, p.weights, gradients, m.batch, f.tape, f.dx, accumulate,
      {.layer_done = [&](int64_t layer) { hooks.stage_done(spec.num_layers() - layer); },
       .attention_next = [&](int64_t) { hooks.attention_next(); }},
      routers);
  hooks.stage_done(spec.num_layers() + 1);
}

std::vector<std::vector<float>> token_weights(std::span<const Sample> samples,
                                              const StepLoss& loss) {
  double step_tokens = 0;
  for (const auto& sample : samples)
    step_tokens += static_cast<double>(sample.num_trained_tokens());
  std::vector<std::vector<float>> weights;
  for (const auto& sample : samples) {
    const int64_t own_tokens = std::max<int64_t>(sample.num_trained_tokens(), 1);
    const int64_t divisor = loss.token_divisor > 0 ? loss.token_divisor : own_tokens;
    const double denominator =
        loss.per_token_loss ? std::max(step_tokens, 1.0)
                            : static_cast<double>(divisor) * static_cast<double>(samples.size());
    std::vector<float> own;
    for (uint8_t m : sample.loss_mask)
      own.push_back(m != 0 ? static_cast<float>(1 / denominator) : 0.0f);
    weights.push_back(std::move(own));
  }
  return weights;
}

double sum_token_weights(std::span<const Sample> samples, const StepLoss& loss) {
  int64_t tokens = 0, trained_samples = 0;
  for (const auto& sample : samples) {
    tokens += sample.num_trained_tokens();
    trained_samples += sample.num_trained_tokens() > 0 ? 1 : 0;
  }
  if (loss.per_token_loss) return tokens > 0 ? 1 : 0;
  const auto num_samples = static_cast<double>(samples.size());
  return loss.token_divisor > 0
             ? static_cast<double>(tokens) / (static_cast<double>(loss.token_divisor) * num_samples)
             : static_cast<double>(trained_samples) / num_samples;
}

}  // namespace slimexx::train

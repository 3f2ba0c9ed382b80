#include "passes.h"

#include <algorithm>

namespace slimexx::train {

using tensor::DType;
using tensor::Tensor;

Tensor run_layers(const Pass& p, std::span<const Sample> samples, std::span<const int64_t> indices,
                  InFlight& f, bool keep) {
  build_microbatch(p.ctx, p.decoder.spec().vocab_size, samples, indices, f.microbatch);
  return p.decoder.forward(p.ctx, p.weights, f.microbatch.batch, keep ? &f.tape : nullptr);
}

void run_head(const Pass& p, Tensor x, InFlight& f, bool keep) {
  const Microbatch& m = f.microbatch;
  f.log_probs = p.ctx.arena.allocate(DType::kF32, {m.num_rows});
  f.entropies = p.ctx.arena.allocate(DType::kF32, {m.num_rows});
  model::head_forward(p.ctx, p.decoder.local_spec().head(), p.weights.head, x, m.head_rows, p.head,
                      f.log_probs, f.entropies, keep ? &f.head_tape : nullptr);
}

void run_forward(const Pass& p, std::span<const Sample> samples, std::span<const int64_t> indices,
                 InFlight& f, bool keep) {
  run_head(p, run_layers(p, samples, indices, f, keep), f, keep);
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
  f.dlog_probs = p.ctx.arena.allocate(DType::kF32, {m.num_rows});
  f.dentropies =
      options.entropy_coef != 0 ? p.ctx.arena.allocate(DType::kF32, {m.num_rows}) : Tensor{};
  ops::policy_loss(p.ctx, f.dlog_probs, f.dentropies, metrics, r, options);
}

void run_backward(const Pass& p, const model::ModelParameters& gradients, InFlight& f,
                  bool accumulate, const StageHooks& hooks, const model::RouterBalances& routers) {
  const Microbatch& m = f.microbatch;
  const model::ModelSpec& spec = p.decoder.spec();
  const Tensor dx =
      p.ctx.arena.allocate(tensor::compute_dtype(p.ctx.device()),
                           {model::own_rows(m.batch, p.ctx.groups).size(), spec.hidden_size});
  model::head_backward(p.ctx, p.decoder.local_spec().head(), p.weights.head, gradients.head,
                       m.head_rows, p.head, f.head_tape, f.entropies, f.dlog_probs, f.dentropies,
                       dx, accumulate);
  hooks.stage_done(0);
  p.decoder.backward(
      p.ctx, p.weights, gradients, m.batch, f.tape, dx, accumulate,
      {.layer_done = [&](int64_t layer) { hooks.stage_done(spec.num_layers() - layer); },
       .attention_next = [&](int64_t) { hooks.attention_next(); }},
      routers);
  hooks.stage_done(spec.num_layers() + 1);
}

std::vector<std::vector<float>> token_weights(std::span<const Sample> samples,
                                              bool per_token_loss) {
  double step_tokens = 0;
  for (const auto& sample : samples)
    step_tokens += static_cast<double>(sample.num_trained_tokens());
  std::vector<std::vector<float>> weights;
  for (const auto& sample : samples) {
    const double denominator =
        per_token_loss ? std::max(step_tokens, 1.0)
                       : static_cast<double>(std::max<int64_t>(sample.num_trained_tokens(), 1)) *
                             static_cast<double>(samples.size());
    std::vector<float> own;
    for (uint8_t m : sample.loss_mask)
      own.push_back(m != 0 ? static_cast<float>(1 / denominator) : 0.0f);
    weights.push_back(std::move(own));
  }
  return weights;
}

}  // namespace slimexx::train

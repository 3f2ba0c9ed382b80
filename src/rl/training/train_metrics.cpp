// Metrics of a rollout's optimizer steps and of its time, by slime's names.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "rl/training/stages.h"
#include "slimexx/ops/policy_loss.h"

namespace slimexx::rl {
namespace {

// A metric named "train/<name>". Loss terms are reported as they were minimised. All other metrics
// are means over tokens, because the loss weights need not sum to 1 (rl.loss_token_divisor, masked
// samples).
struct NamedMetric {
  const char* name;
  ops::LossMetric metric;
  bool is_loss = false;
  double of(const train::StepResult& step) const {
    return is_loss ? step.metric(metric) : step.mean(metric);
  }
};

// The losses and ratios that are meaningful with the run's options.
std::vector<NamedMetric> list_loss_metrics(const Rollout& rollout, const RunConfig& config) {
  using enum ops::LossMetric;
  std::vector<NamedMetric> list = {{"loss", kLoss, true}};
  if (config.is_sft()) {
    list.push_back({"sft_loss", kPgLoss});
  } else {
    list.insert(list.end(), {{"pg_loss", kPgLoss, true},
                             {"pg_clipfrac", kClipFraction},
                             {"pg_clipfrac/low", kClipFractionLow},
                             {"pg_clipfrac/high", kClipFractionHigh},
                             {"ppo_kl", kPpoKl},
                             {"ois", kRatio}});
    if (config.rl.use_kl_loss && !rollout.samples[0].ref_log_probs.empty())
      list.insert(list.end(), {{"kl_loss", kKlLoss, true}, {"ref_kl", kKlLoss}});
    if (config.rl.use_tis)
      list.insert(list.end(),
                  {{"tis", kTis}, {"tis_abs", kTisAbs}, {"tis_clipfrac", kTisClipFraction}});
    if (config.rl.use_opsm) list.push_back({"opsm_clipfrac", kOpsmClipFraction});
  }
  list.insert(list.end(), {{"entropy", kEntropy}, {"entropy_loss", kEntropy}});
  return list;
}

// The loss of each trained MTP layer, numbered from 1, and their sum.
void set_mtp_losses(const std::string& prefix, const std::vector<double>& losses,
                    observe::MetricRow& row) {
  if (losses.empty()) return;
  row.set(prefix + "mtp_loss", std::accumulate(losses.begin(), losses.end(), 0.0));
  for (size_t i = 0; i < losses.size(); ++i)
    row.set(fmt::format("{}mtp_{}_loss", prefix, i + 1), losses[i]);
}

// Adds the router statistics of one optimizer step, weighted by `share`.
void add_router_loads(const train::StepResult& step, double share,
                      std::map<std::string, double>& values) {
  if (step.routers.empty()) return;
  const double part = share / static_cast<double>(step.routers.size());
  double most = 0, least = step.routers[0].min_load;
  for (const train::RouterLoad& load : step.routers) {
    const auto of_layer = [&](const char* name) -> double& {
      return values[fmt::format("{}/layer_{}", name, load.layer)];
    };
    most = std::max(most, load.max_load);
    least = std::min(least, load.min_load);
    of_layer("moe_load_max") += share * load.max_load;
    of_layer("moe_load_min") += share * load.min_load;
    of_layer("moe_router_entropy") += share * load.entropy;
    values["moe_router_entropy"] += part * load.entropy;
    values["moe_aux_loss"] += part * load.aux_loss;
    values["moe_z_loss"] += part * load.z_loss;
  }
  values["moe_load_max"] += share * most;
  values["moe_load_min"] += share * least;
}

void set_router_loads(const std::string& prefix, std::span<const train::StepResult> steps,
                      observe::MetricRow& row) {
  std::map<std::string, double> values;
  for (const auto& step : steps)
    add_router_loads(step, 1 / static_cast<double>(steps.size()), values);
  for (const auto& [name, value] : values) row.set(prefix + name, value);
}

// Differences between log-probs of training and generation: over the whole rollout if it was
// compared, otherwise over the first step, which still has the weights that generated the rollout.
void set_mismatch(const Rollout& rollout, observe::MetricRow& row) {
  using enum ops::LossMetric;
  const auto& first = rollout.steps.front();
  double abs_diff = first.mean(kLogProbAbsDiff), max_diff = first.metric(kLogProbMaxDiff);
  double mismatches = first.metric(kLogProbMismatches), tokens_seen = first.metric(kComparedTokens);
  if (const auto& all = rollout.comparison) {
    abs_diff = all->sum_diff / std::max(1.0, all->tokens);
    max_diff = std::max(max_diff, all->max_diff);
    mismatches = std::max(mismatches, all->mismatches);
    tokens_seen = all->tokens;
  }
  row.set("train/train_rollout_logprob_abs_diff", abs_diff);
  row.set("train/train_rollout_logprob_max_diff", max_diff);
  row.set("train/mismatch_tokens", mismatches / std::max(1.0, tokens_seen));
  row.set("train/compared_tokens", tokens_seen);
}

}  // namespace

void set_train_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row) {
  const auto steps = static_cast<double>(rollout.steps.size());
  const auto mean = [&](const NamedMetric& metric) {
    double sum = 0;
    for (const auto& step : rollout.steps) sum += metric.of(step);
    return sum / steps;
  };
  double norm = 0, microbatches = 0, tokens = 0, room = 0, skipped = 0;
  std::optional<double> fp8_changed;
  std::vector<double> mtp_losses(rollout.steps.front().mtp_losses.size());
  for (const auto& step : rollout.steps) {
    for (size_t i = 0; i < mtp_losses.size(); ++i) mtp_losses[i] += step.mtp_losses[i] / steps;
    norm += step.gradient_norm / steps;
    microbatches += static_cast<double>(step.microbatches_per_rank);
    tokens += static_cast<double>(step.num_tokens);
    room += static_cast<double>(step.packed_room_tokens);
    skipped += step.skipped;
    if (step.fp8_changed) fp8_changed = fp8_changed.value_or(0) + *step.fp8_changed / steps;
  }
  for (const NamedMetric& metric : list_loss_metrics(rollout, config))
    row.set(std::string("train/") + metric.name, mean(metric));
  set_mtp_losses("train/", mtp_losses, row);
  set_router_loads("train/", rollout.steps, row);
  if (!config.is_sft() && !rollout.samples[0].rollout_log_probs.empty()) set_mismatch(rollout, row);
  row.set("train/grad_norm", norm);
  if (fp8_changed) row.set("train/fp8_changed", *fp8_changed);
  row.set("train/skipped_steps", skipped);
  row.set("train/num_steps", steps);
  row.set("train/num_microbatches", microbatches / steps);
  row.set("train/num_tokens", tokens);
  if (config.train.use_dynamic_batch_size) row.set("train/pack_fill", tokens / room);
  row.set("train/param_norm", rollout.param_norm);
  row.set("train/weight_decay", config.optimizer.weight_decay);
}

observe::MetricRow make_train_step_row(const Rollout& rollout, size_t index,
                                       const RunConfig& config) {
  const train::StepResult& step = rollout.steps[index];
  observe::MetricRow row;
  const std::string prefix = "train_step/";
  for (const NamedMetric& metric : list_loss_metrics(rollout, config))
    row.set(prefix + metric.name, metric.of(step));
  set_mtp_losses(prefix, step.mtp_losses, row);
  set_router_loads(prefix, {&step, 1}, row);
  row.set(prefix + "grad_norm", step.gradient_norm);
  if (step.fp8_changed) row.set(prefix + "fp8_changed", *step.fp8_changed);
  row.set(prefix + "lr", step.learning_rate);
  row.set(prefix + "skipped_steps", step.skipped ? 1 : 0);
  row.set(prefix + "num_microbatches", static_cast<double>(step.microbatches_per_rank));
  row.set(prefix + "num_tokens", static_cast<double>(step.num_tokens));
  return row;
}

void set_time_metrics(const Rollout& rollout, const RankRoles& roles, observe::MetricRow& row) {
  const auto time = [&](const char* name) {
    const auto it = rollout.span_seconds.find(name);
    return it == rollout.span_seconds.end() ? 0.0 : it->second;
  };
  for (const auto& [name, value] : rollout.span_seconds) {
    if (name != "step") row.set("perf/" + name + "_time", value);
  }
  double effective = 0, longest_effective = 0, trained = 0, flops = 0, updated = 0;
  for (const auto& s : rollout.samples) {
    const auto counted = static_cast<double>(s.num_trained_tokens());
    effective += counted;
    longest_effective = std::max(longest_effective, counted);
  }
  for (const auto& step : rollout.steps) {
    trained += static_cast<double>(step.num_tokens);
    updated += step.update_seconds;
    flops += step.flops;
  }
  if (const double rollout_s = time("rollout"); rollout.is_generated && rollout_s > 0) {
    const auto generated = static_cast<double>(rollout.num_generated_tokens),
               longest = static_cast<double>(rollout.longest_response);
    row.set("perf/tokens_per_gpu_per_sec", generated / rollout_s / roles.num_generators);
    row.set("perf/effective_tokens_per_gpu_per_sec", effective / rollout_s / roles.num_generators);
    row.set("perf/longest_sample_tokens_per_sec", longest / rollout_s);
    row.set("perf/longest_effective_sample_tokens_per_sec", longest_effective / rollout_s);
  }
  if (time("actor_train") > 0) {
    row.set("perf/actor_train_tok_per_s", trained / time("actor_train") / roles.num_trainers);
    row.set("perf/actor_train_tflops", flops / time("actor_train") / roles.num_trainers / 1e12);
  }
  if (updated > 0) row.set("perf/optimizer_time", updated);
  const double train_s = time("actor_train") + time("log_probs") + time("ref_log_probs");
  const double wait_s = time("rollout") + time("update_weights") + time("eval");
  row.set("perf/train_time", train_s);
  row.set("perf/train_wait_time", wait_s);
  row.set("perf/step_time", train_s + wait_s);
  if (train_s + wait_s > 0) row.set("perf/wait_time_ratio", wait_s / (train_s + wait_s));
}

}  // namespace slimexx::rl

// What a run reports of a rollout: metrics, the step line, the table of samples, the first step's
// checks.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>

#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

double peak_memory_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);  // KiB
}

// Mean over the rollout's trained tokens of a per-token field.
double token_mean(const std::vector<Sample>& samples, const std::vector<std::vector<float>>* values,
                  std::vector<float> Sample::*field) {
  double sum = 0, n = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto& own = values != nullptr ? (*values)[i] : samples[i].*field;
    for (size_t t = 0; t < own.size(); ++t) {
      if (samples[i].loss_mask[t] == 0) continue;
      sum += own[t];
      n += 1;
    }
  }
  return n > 0 ? sum / n : 0;
}

// Mean over the trained tokens; KL terms are 0 elsewhere.
double mean_reference_kl(const std::vector<Sample>& samples, const RlOptions& options) {
  double sum = 0, n = 0;
  for (const auto& s : samples) {
    for (const float kl : reference_kl(s, options)) sum += kl;
    n += static_cast<double>(s.num_trained_tokens());
  }
  return n > 0 ? sum / n : 0;
}

void set_group_metrics(const std::vector<Sample>& samples, observe::MetricRow& row) {
  const auto groups = group_samples(samples);
  int64_t flat = 0;
  double smallest = HUGE_VAL;
  for (const auto& group : groups) {
    smallest = std::min(smallest, static_cast<double>(group.size()));
    flat += std::all_of(group.begin(), group.end(),
                        [&](size_t i) { return samples[i].reward == samples[group[0]].reward; });
  }
  row.set("rollout/num_groups", static_cast<double>(groups.size()));
  row.set("rollout/zero_std/frac", static_cast<double>(flat) / static_cast<double>(groups.size()));
  for (int64_t k = 1; k <= static_cast<int64_t>(smallest); k *= 2) {
    double sum = 0;
    for (const auto& group : groups) {
      const auto correct = std::count_if(group.begin(), group.end(),
                                         [&](size_t i) { return samples[i].reward == 1; });
      sum += pass_at_k(static_cast<int64_t>(group.size()), correct, k);
    }
    row.set(fmt::format("passrate/pass@{}", k), sum / static_cast<double>(groups.size()));
  }
}

}  // namespace

void set_rollout_metrics(const Rollout& rollout, const RunConfig& config, observe::MetricRow& row) {
  const auto& samples = rollout.samples;
  const auto n = static_cast<double>(samples.size());
  std::vector<double> rewards, lengths;
  double truncated = 0, aborted = 0, total = 0, cached = 0, prompt = 0, tokens = 0;
  for (const auto& s : samples) {
    rewards.push_back(s.reward);
    lengths.push_back(static_cast<double>(s.num_trained_tokens()));
    truncated += s.status == SampleStatus::kTruncated;
    aborted += s.status == SampleStatus::kAborted;
    total += static_cast<double>(s.tokens.size());
    prompt += static_cast<double>(s.prompt_length());
    cached += static_cast<double>(s.cached_tokens);
    tokens += static_cast<double>(s.response_length);
  }
  row.set("rollout/step", static_cast<double>(rollout.index));
  row.set("rollout/num_samples", n);
  row.set("rollout/num_tokens", tokens);
  observe::set_statistics(row, "rollout/response_len", lengths);
  row.set("rollout/total_lengths", total / n);
  row.set("rollout/prompt_lengths", prompt / n);
  if (config.is_sft()) return;
  row.set("rollout/raw_reward", [&] {
    double sum = 0;
    for (double r : rewards) sum += r;
    return sum / n;
  }());
  observe::set_statistics(row, "rollout/raw_reward", rewards);
  row.set("rollout/truncated_ratio", truncated / n);
  row.set("rollout/aborted_ratio", aborted / n);
  row.set("rollout/advantages", token_mean(samples, &rollout.advantages, nullptr));
  if (!samples[0].rollout_log_probs.empty())
    row.set("rollout/rollout_log_probs", token_mean(samples, nullptr, &Sample::rollout_log_probs));
  if (!samples[0].ref_log_probs.empty())
    row.set("rollout/ref_log_probs", token_mean(samples, nullptr, &Sample::ref_log_probs));
  if (config.rl.kl_coef != 0) {
    const double kl = mean_reference_kl(samples, config.rl);
    row.set("rollout/kl", kl);
    row.set("train/ref_kl", kl);
  }
  row.set("rollout/prefix_cache_hit_rate", prompt > 0 ? cached / prompt : 0);
  row.set("rollout/avg_cached_tokens_per_sample", cached / n);
  set_group_metrics(samples, row);
}

void set_train_metrics(const Rollout& rollout, const RunConfig& config, int num_ranks,
                       observe::MetricRow& row) {
  const auto steps = static_cast<double>(rollout.steps.size());
  const auto mean = [&](ops::LossMetric metric) {
    double sum = 0;
    for (const auto& step : rollout.steps) sum += step.metric(metric);
    return sum / steps;
  };
  double norm = 0, microbatches = 0, tokens = 0, skipped = 0;
  for (const auto& step : rollout.steps) {
    norm += step.gradient_norm / steps;
    microbatches += static_cast<double>(step.num_microbatches);
    tokens += static_cast<double>(step.num_tokens);
    skipped += step.skipped;
  }
  using enum ops::LossMetric;
  row.set("train/loss", mean(kLoss));
  if (config.is_sft()) {
    row.set("train/sft_loss", mean(kPgLoss));
  } else {
    row.set("train/pg_loss", mean(kPgLoss));
    row.set("train/pg_clipfrac", mean(kClipFraction));
    row.set("train/pg_clipfrac/low", mean(kClipFractionLow));
    row.set("train/pg_clipfrac/high", mean(kClipFractionHigh));
    row.set("train/ppo_kl", mean(kPpoKl));
    row.set("train/ois", mean(kRatio));
    if (config.rl.use_kl_loss && !rollout.samples[0].ref_log_probs.empty()) {
      row.set("train/kl_loss", mean(kKlLoss));
      row.set("train/ref_kl", mean(kKlLoss));
    }
    if (config.rl.use_tis) {
      row.set("train/tis", mean(kTis));
      row.set("train/tis_abs", mean(kTisAbs));
      row.set("train/tis_clipfrac", mean(kTisClipFraction));
    }
    if (!rollout.samples[0].rollout_log_probs.empty()) {
      // Of the first step, whose weights are those that generated; of all tokens where those were
      // compared.
      const auto& first = rollout.steps.front();
      double abs_diff = first.metric(kLogProbAbsDiff), max_diff = first.metric(kLogProbMaxDiff);
      double mismatches = first.metric(kLogProbMismatches), tokens_seen = first.metric(kTokens);
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
  }
  row.set("train/entropy", mean(kEntropy));
  row.set("train/entropy_loss", mean(kEntropy));
  row.set("train/grad_norm", norm);
  row.set("train/skipped_steps", skipped);
  row.set("train/num_steps", steps);
  row.set("train/num_microbatches", microbatches / (steps * num_ranks));
  row.set("train/num_tokens", tokens);
}

void set_time_metrics(const Rollout& rollout, int num_ranks, observe::MetricRow& row) {
  const auto seconds = observe::take_span_seconds();
  const auto time = [&](const char* name) {
    const auto it = seconds.find(name);
    return it == seconds.end() ? 0.0 : it->second;
  };
  for (const auto& [name, value] : seconds) {
    if (name != "step") row.set("perf/" + name + "_time", value);
  }
  double generated = 0, trained = 0, flops = 0;
  for (const auto& s : rollout.samples) generated += static_cast<double>(s.response_length);
  for (const auto& step : rollout.steps) {
    trained += static_cast<double>(step.num_tokens);
    flops += step.flops;
  }
  if (time("rollout") > 0)
    row.set("perf/tokens_per_gpu_per_sec", generated / time("rollout") / num_ranks);
  if (time("actor_train") > 0) {
    row.set("perf/actor_train_tok_per_s", trained / time("actor_train") / num_ranks);
    row.set("perf/actor_train_tflops", flops / time("actor_train") / num_ranks / 1e12);
  }
  row.set("perf/step_time", time("rollout") + time("actor_train") + time("log_probs") +
                                time("ref_log_probs") + time("update_weights") + time("eval"));
}

void TrainingRun::report(Rollout& rollout) {
  set_rollout_metrics(rollout, config_, rollout.row);
  set_train_metrics(rollout, config_, world_.size(), rollout.row);
  set_time_metrics(rollout, world_.size(), rollout.row);
  observe::MetricRow& row = rollout.row;
  row.set("train/lr", learning_rate_);
  row.set("train/step", static_cast<double>(optimizer_steps_));
  row.set("train/global_batch_size", static_cast<double>(rollout.samples_per_step));
  row.set("sys/mem_peak_gib", peak_memory_gib());
  if (!request_.device.is_cpu()) {
    const auto& counters = tensor::allocation_counters(request_.device);
    row.set("sys/gpu_mem_peak_gib", static_cast<double>(counters.peak_bytes) / 0x1p30);
  }
  if (engine_ && source_->is_generated()) {
    const auto& stats = engine_->stats();
    row.set("perf/preemptions", static_cast<double>(stats.preemptions));
    row.set("perf/kv_cache_usage", static_cast<double>(stats.peak_pages) /
                                       static_cast<double>(std::max<int64_t>(1, stats.num_pages)));
  }
  dist::run_agreed(communicator_, [&] {
    if (is_root()) log_rollout(rollout);
  });
}

void TrainingRun::log_rollout(const Rollout& rollout) {
  const observe::MetricRow& row = rollout.row;
  if (const double* reward = row.find("rollout/raw_reward")) reward_history_.push_back(*reward);
  log_->write_row(rollout.index, row);
  log_->print_step(rollout.index, row);
  log_->write_status("running", next_rollout_);
  if (rollout.index == 0) log_first_step_checks(rollout);
  const int64_t interval = config_.observe.log_samples_interval;
  if (interval > 0 && !config_.is_sft() && rollout.index % interval == 0) log_samples(rollout);
}

// The run at a glance: evaluations before and after, the reward's way.
void TrainingRun::log_summary() const {
  if (!config_.is_sft() && reward_history_.size() >= 8) {
    log_info("\n{}", observe::plot_series("mean reward by rollout", reward_history_, 72, 12));
  }
  if (last_eval_.empty()) return;
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < last_eval_.size(); ++i) {
    const EvalResult &before = first_eval_[i], &after = last_eval_[i];
    const double b = before.pass_at.front().second, a = after.pass_at.front().second;
    rows.push_back({after.name, fmt::format("{:.1f} %", 100 * b), fmt::format("{:.1f} %", 100 * a),
                    fmt::format("{:+.1f} points", 100 * (a - b)),
                    fmt::format("{:.1f}", before.mean_response_length),
                    fmt::format("{:.1f}", after.mean_response_length)});
  }
  log_info("before and after\n{}",
           observe::format_table({{.header = "set"},
                                  {.header = "pass@1 before", .right_align = true},
                                  {.header = "after", .right_align = true},
                                  {.header = "change", .right_align = true},
                                  {.header = "length before", .right_align = true},
                                  {.header = "after", .right_align = true}},
                                 rows));
}

void TrainingRun::log_first_step_checks(const Rollout& rollout) const {
  if (!source_->is_generated()) return;
  const train::StepResult& first = rollout.steps.front();
  struct Check {
    const char* name;
    double value;
    bool applies;
    const char* cause;
  };
  const bool same_reference = config_.model.ref_load == config_.model.hf_checkpoint &&
                              config_.rl.use_kl_loss && !rollout.samples[0].ref_log_probs.empty();
  const Check checks[] = {
      {"log-prob difference 0", first.metric(ops::LossMetric::kLogProbMaxDiff), true,
       "training and generation disagree"},
      {"ratio 1", std::abs(first.metric(ops::LossMetric::kPpoKl)), true,
       "old log-probs are not those of the weights"},
      {"clipped 0", first.metric(ops::LossMetric::kClipFraction), true,
       "old log-probs are not those of the weights"},
      {"KL 0", std::abs(first.metric(ops::LossMetric::kKlLoss)), same_reference,
       "the reference is not the start of the policy"},
  };
  int passed = 0, applied = 0;
  for (const auto& check : checks) {
    if (!check.applies) continue;
    ++applied;
    if (check.value == 0) {
      ++passed;
    } else {
      log_warn("first-step check \"{}\" is {:.3g}: {}", check.name, check.value, check.cause);
    }
  }
  log_info("first-step checks: {}/{} ({} tokens compared bit for bit)", passed, applied,
           first.metric(ops::LossMetric::kTokens));
}

void TrainingRun::log_samples(const Rollout& rollout) const {
  std::vector<std::vector<std::string>> rows;
  const auto groups = group_samples(rollout.samples);
  for (size_t g = 0;
       g < std::min<size_t>(groups.size(), static_cast<size_t>(config_.observe.num_log_samples));
       ++g) {
    const Sample& s = rollout.samples[groups[g][0]];
    rows.push_back({s.prompt_text, s.response_text, s.label, fmt::format("{:g}", s.reward),
                    s.reason, fmt::format("{}", s.response_length),
                    std::string(status_name(s.status))});
  }
  log_info("samples of rollout {}\n{}", rollout.index,
           observe::format_table({{.header = "prompt", .max_width = 36, .keep_tail = true},
                                  {.header = "response", .max_width = 40, .keep_tail = true},
                                  {.header = "label", .max_width = 16},
                                  {.header = "reward", .right_align = true},
                                  {.header = "reason", .max_width = 28},
                                  {.header = "len", .right_align = true},
                                  {.header = "finish"}},
                                 rows));
}

}  // namespace slimexx::rl

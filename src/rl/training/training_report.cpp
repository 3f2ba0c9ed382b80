// The reports of a run about a rollout: metrics, the step line, the table of samples, checks of the
// first step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "rl/training/stages.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/log_file.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/lines.h"
#include "slimexx/observe/console.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/sample/sample_file.h"

namespace slimexx::rl {
namespace {

constexpr size_t kLeastPlotted = 8;  // values

// The start and the end of a text that is too long for TensorBoard's text page. A character cut in
// two is replaced when the text is written.
std::string shorten_text(const std::string& text) {
  constexpr size_t kHalf = 4000;
  if (text.size() <= 2 * kHalf) return text;
  return fmt::format(
      "{}\n"
      "[{} bytes omitted]\n"
      "{}",
      text.substr(0, kHalf), text.size() - 2 * kHalf, text.substr(text.size() - kHalf));
}

void set_source_metrics(const RolloutSide& rollout_side, observe::MetricRow& row) {
  if (rollout_side.prompts) {
    row.set("data/num_prompts", static_cast<double>(rollout_side.prompts->size()));
    row.set("data/filtered_prompts", static_cast<double>(rollout_side.prompts->num_dropped()));
  }
  const Json state = rollout_side.source->state();
  if (!state.contains("epoch")) return;  // a dump has none
  row.set("data/epoch", static_cast<double>(state.at("epoch").get<int64_t>()));
  row.set("data/cursor", static_cast<double>(state.at("offset").get<int64_t>()));
}

void set_engine_metrics(const rollout::EngineStats& stats, observe::MetricRow& row) {
  const auto ratio = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
  };
  row.set("perf/decode_steps", static_cast<double>(stats.steps));
  row.set("perf/decode_batch", ratio(stats.generated_tokens, stats.steps));
  row.set("perf/prefill_tokens",
          static_cast<double>(stats.prompt_tokens - stats.cached_tokens + stats.recomputed_tokens));
  row.set("perf/preemptions", static_cast<double>(stats.preemptions));
  row.set("perf/kv_cache_usage", ratio(stats.peak_pages, stats.num_pages));
  if (stats.verifications > 0) {
    row.set("rollout/spec_accept_rate", ratio(stats.accepted_tokens, stats.draft_tokens));
    row.set("rollout/spec_accept_length", 1 + ratio(stats.accepted_tokens, stats.verifications));
  }
}

// Metrics of the first rank that generates, on every rank; if disaggregated, also its times.
void add_engine_metrics(const Session& session, const RolloutSide& rollout_side, Rollout& rollout) {
  observe::MetricRow found;
  if (rollout_side.engine) {
    set_engine_metrics(rollout.engine_stats, found);
    found.set("sys/kv_cache_gib",
              static_cast<double>(rollout_side.engine->lend_cache().size_bytes()) / 0x1p30);
  }
  if (session.roles.are_apart) {
    if (!session.trains())
      for (const auto& [name, seconds] : rollout.span_seconds)
        if (name == "generate" || name == "reward") found.set("perf/" + name + "_time", seconds);
    const Json told =
        parse_json(dist::broadcast_bytes(session.communicator, Json(found.values()).dump(),
                                         session.roles.first_generator()),
                   "metrics of an engine");
    for (const Json& pair : told) found.set(pair.at(0).get<std::string>(), pair.at(1));
  }
  rollout.row.merge(found);
}

// Metrics of this rank's training and of its process.
void set_rank_metrics(const Session& session, const RolloutSide& rollout_side,
                      const Progress& progress, const Rollout& rollout, observe::MetricRow& row) {
  set_rollout_metrics(rollout, session.config, row);
  set_train_metrics(rollout, session.config, row);
  set_time_metrics(rollout, session.roles, row);
  row.set("train/lr", rollout.steps.back().learning_rate);
  row.set("train/step", static_cast<double>(progress.optimizer_steps));
  row.set("train/global_batch_size", static_cast<double>(rollout.samples_per_step));
  set_machine_metrics(session.config.observe.run_dir, session.world.size(), row);
  set_source_metrics(rollout_side, row);
  if (!session.request.device.is_cpu()) {
    const auto& counters = tensor::allocation_counters(session.request.device);
    row.set("sys/gpu_mem_peak_gib", static_cast<double>(counters.peak_bytes) / 0x1p30);
  }
}

void write_train_steps(const Session& session, const Progress& progress, const Rollout& rollout) {
  const int64_t before = progress.optimizer_steps - static_cast<int64_t>(rollout.steps.size());
  for (size_t k = 0; k < rollout.steps.size(); ++k)
    session.log->write_train_step(rollout.index, before + static_cast<int64_t>(k) + 1,
                                  make_train_step_row(rollout, k, session.config));
}

// The samples file is only for inspection: a failure to write it does not end the run.
void write_samples(const Session& session, const Rollout& rollout) {
  try {
    make_directories(session.path("samples"));
    sample::write_sample_file(session.path("samples/" + sample::sample_file_name(rollout.index)),
                              rollout.samples);
  } catch (const Error& error) {
    log_warn("the samples of rollout {} were not written: {}", rollout.index, error.message());
  }
}

void log_first_step_checks(const RunConfig& config, const Rollout& rollout) {
  if (!rollout.is_generated) return;
  const train::StepResult& first = rollout.steps.front();
  const double compared = first.metric(ops::LossMetric::kComparedTokens);
  const bool trains = first.metric(ops::LossMetric::kTokens) > 0;
  struct Check {
    const char* name;
    double value;
    bool applies;  // the check makes sense for this run
    const char* cause;
  };
  const bool same_reference = config.model.ref_load == config.model.hf_checkpoint &&
                              config.rl.use_kl_loss && !rollout.samples[0].ref_log_probs.empty();
  const Check checks[] = {
      {"log-prob difference 0", first.metric(ops::LossMetric::kLogProbMaxDiff), compared > 0,
       "training and generation disagree"},
      {"ratio 1", std::abs(first.metric(ops::LossMetric::kPpoKl)), trains,
       "the old log-probs are not those of the current weights"},
      {"clipped 0", first.metric(ops::LossMetric::kClipFraction), trains,
       "the old log-probs are not those of the current weights"},
      {"KL 0", std::abs(first.metric(ops::LossMetric::kKlLoss)), same_reference && trains,
       "the policy did not start from the reference"},
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
  if (compared == 0)
    log_warn(
        "no token of the first step was compared with generation, so the check is inconclusive");
  log_info("first-step checks: {}/{} ({} tokens compared bit for bit)", passed, applied, compared);
}

void log_samples(const Session& session, const Rollout& rollout) {
  std::vector<std::vector<std::string>> rows;
  std::string markdown;
  const auto groups = group_samples(rollout.samples);
  for (size_t g = 0;
       g <
       std::min<size_t>(groups.size(), static_cast<size_t>(session.config.observe.num_log_samples));
       ++g) {
    const Sample& s = rollout.samples[groups[g][0]];
    rows.push_back({s.prompt_text, s.response_text, s.label, fmt::format("{:g}", s.reward),
                    s.reason, fmt::format("{}", s.response_length),
                    std::string(status_name(s.status))});
    markdown += fmt::format("**group {} sample {}: reward {:g}**, {} tokens, {}", s.group, s.sample,
                            s.reward, s.response_length, status_name(s.status));
    for (const auto& [title, text] : {std::pair("prompt", &s.prompt_text),
                                      {"response", &s.response_text},
                                      {"label", &s.label},
                                      {"reason", &s.reason}})
      markdown += fmt::format("\n\n{}{}", title, observe::markdown_code(shorten_text(*text)));
  }
  session.log->write_text(rollout.index, "samples", markdown);
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

// Checks whether the run learns: reported on the console at intervals, in status.json always.
void watch_learning(const Session& session, RolloutSide& rollout_side, const Rollout& rollout) {
  if (session.config.is_sft()) return;
  const auto metric = [&](const char* name) {
    const double* value = rollout.row.find(name);
    return value != nullptr ? std::optional(*value) : std::nullopt;
  };
  LearningSigns signs = find_signs(rollout.samples, metric("train/entropy"));
  signs.fp8_changed = metric("train/fp8_changed");
  const auto faults = find_learning_faults(signs);
  std::string all;
  for (const LearningFault& fault : faults) all += (all.empty() ? "" : "; ") + fault.what;
  session.log->set_not_learning(all);
  for (const std::string& what : rollout_side.learning.choose_due(rollout.index, faults))
    log_warn("rollout {}: {}", rollout.index, what);
}

void log_rollout(const Session& session, RolloutSide& rollout_side, const Progress& progress,
                 const Rollout& rollout) {
  const observe::MetricRow& row = rollout.row;
  if (const double* reward = row.find("rollout/raw_reward"))
    rollout_side.reward_history.push_back(*reward);
  session.log->write_row(rollout.index, row);
  write_train_steps(session, progress, rollout);
  session.log->print_step(rollout.index, row);
  watch_learning(session, rollout_side, rollout);
  session.log->write_status("running", progress.next_rollout);
  if (rollout.index == 0) log_first_step_checks(session.config, rollout);
  if (session.config.is_sft()) return;
  const auto is_due = [&](int64_t interval) {
    return interval > 0 && rollout.index % interval == 0;
  };
  if (is_due(session.config.observe.samples_interval)) write_samples(session, rollout);
  if (is_due(session.config.observe.log_samples_interval)) log_samples(session, rollout);
}

// The values of a metric over the run, from earlier processes too.
std::vector<double> read_series(const std::string& metrics_path, const std::string& name) {
  std::vector<double> values;
  io::LineReader reader(metrics_path);
  for (Json row; io::next_json_object(reader, row);)
    if (const auto value = row.find(name); value != row.end() && value->is_number())
      values.push_back(value->get<double>());
  return values;
}

// Plots the loss of supervised training.
void log_losses(const RunConfig& config) {
  const auto losses = read_series(join_path(config.observe.run_dir, "metrics.jsonl"), "train/loss");
  if (losses.empty()) return;
  if (losses.size() >= kLeastPlotted)
    log_info("\n{}", observe::plot_series("loss by step", losses, 72, 12));
  const size_t tenth = std::max<size_t>(1, losses.size() / 10);
  const auto mean = [&](size_t first) {
    double sum = 0;
    for (size_t i = first; i < first + tenth; ++i) sum += losses[i];
    return sum / static_cast<double>(tenth);
  };
  log_info("loss {:.4f} at the start, {:.4f} at the end (means of {} of {} steps)", mean(0),
           mean(losses.size() - tenth), tenth, losses.size());
}

// The run's first evaluation of each set, "eval/SET/..." by name, from earlier processes too.
std::map<std::string, double> read_first_evaluations(const std::string& metrics_path) {
  std::map<std::string, double> first;
  io::LineReader reader(metrics_path);
  for (Json row; io::next_json_object(reader, row);)
    for (const auto& [name, value] : row.items())
      if (name.starts_with("eval/") && value.is_number()) first.emplace(name, value.get<double>());
  return first;
}

void log_evaluations(const RunConfig& config, const std::vector<EvalResult>& last) {
  const auto first = read_first_evaluations(join_path(config.observe.run_dir, "metrics.jsonl"));
  std::vector<std::vector<std::string>> rows;
  for (const EvalResult& after : last) {
    const auto before = first.find(fmt::format("eval/{}/pass@1", after.name));
    const auto length = first.find(fmt::format("eval/{}/response_len/mean", after.name));
    if (before == first.end() || length == first.end()) continue;
    const double b = before->second, a = after.pass_at.front().second;
    rows.push_back({after.name, fmt::format("{:.1f} %", 100 * b), fmt::format("{:.1f} %", 100 * a),
                    fmt::format("{:+.1f} points", 100 * (a - b)),
                    fmt::format("{:.1f}", length->second),
                    fmt::format("{:.1f}", after.mean_response_length)});
  }
  log_info(
      "before and after\n"
      "{}",
      observe::format_table({{.header = "set"},
                             {.header = "pass@1 before", .right_align = true},
                             {.header = "after", .right_align = true},
                             {.header = "change", .right_align = true},
                             {.header = "length before", .right_align = true},
                             {.header = "after", .right_align = true}},
                            rows));
}

}  // namespace

void report(const Session& session, RolloutSide& rollout_side, const Progress& progress,
            Rollout& rollout) {
  const PhaseScope phase("report");
  keep_log_file();
  if (session.trains()) set_rank_metrics(session, rollout_side, progress, rollout, rollout.row);
  if (rollout.is_generated) add_engine_metrics(session, rollout_side, rollout);
  dist::run_agreed(session.communicator, [&] {
    if (session.is_root()) log_rollout(session, rollout_side, progress, rollout);
  });
}

bool has_evaluation(const std::string& metrics_path, int64_t rollout) {
  if (!path_exists(metrics_path)) return false;
  io::LineReader reader(metrics_path);
  for (Json row; io::next_json_object(reader, row);)
    if (const auto step = row.find("eval/step"); step != row.end() && *step == rollout) return true;
  return false;
}

// The run at a glance: evaluations before and after, and the plot of the reward or the loss.
void log_summary(const RunConfig& config, const RolloutSide& rollout_side) {
  if (!config.is_sft() && rollout_side.reward_history.size() >= kLeastPlotted) {
    log_info("\n{}",
             observe::plot_series("mean reward by rollout", rollout_side.reward_history, 72, 12));
  }
  try {
    if (config.is_sft()) log_losses(config);
    if (!rollout_side.last_eval.empty()) log_evaluations(config, rollout_side.last_eval);
  } catch (const Error& error) {  // the run is complete without a summary
    log_warn("the summary is incomplete: {}", error.located_message());
  }
}

}  // namespace slimexx::rl

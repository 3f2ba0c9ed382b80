// The stages of the rollout side: samples, hand-over, evaluation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rl/checkpoint/stop_signal.h"
#include "rl/training/stages.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

// Refuses a dump in which only some samples have a per-token field: all must have it, or none.
void check_uniform(std::span<const Sample> samples, std::vector<float> Sample::*field,
                   const char* name) {
  for (const auto& s : samples) {
    if ((s.*field).empty() != (samples[0].*field).empty()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("some samples have {}, but group {} sample {} does not", name,
                              s.group, s.sample),
                  "give the field to all samples or to none", "rollout dump");
    }
  }
}

// The configuration sets the number of samples per step, except for dumps: a dump is split into
// num_steps_per_rollout equal steps, or by global_batch_size.
size_t find_samples_per_step(const RunConfig& config, int64_t rollout, size_t num_samples) {
  const auto total = static_cast<int64_t>(num_samples);
  const int64_t steps = config.num_steps_per_rollout, batch = config.global_batch_size;
  if (steps == 0 && total % batch != 0)
    throw Error(ErrorCode::kInput,
                fmt::format("the dump of rollout {} has {} samples, not a multiple of "
                            "global_batch_size {}",
                            rollout, total, batch),
                "set train.global_batch_size to a divisor, or train.num_steps_per_rollout",
                config.debug.load_rollout);
  if (steps == 0) return static_cast<size_t>(batch);
  if (!config.debug.load_rollout.empty() &&
      (batch > 0 ? batch * steps != total : total % steps != 0)) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("the dump of rollout {} has {} samples, not num_steps_per_rollout {} * {}",
                    rollout, total, steps,
                    batch > 0 ? fmt::format("global_batch_size {}", batch) : "a whole number"),
        batch > 0 ? "leave out one of the two" : "set train.num_steps_per_rollout to a divisor",
        config.debug.load_rollout);
  }
  return static_cast<size_t>(batch > 0 ? batch : total / steps);
}

// Whether only samples without a grade are masked so far.
bool is_all_sampled(std::span<const Sample> samples) {
  return std::ranges::all_of(samples, [](const Sample& s) {
    return s.grader_failed || s.num_trained_tokens() == s.response_length;
  });
}

// Log-probs at another temperature belong to another policy: a ratio to them is meaningless.
void check_temperature(const RunConfig& config, const Sample& s) {
  const auto temperature = static_cast<float>(config.training_temperature());
  if (config.is_sft() || !s.temperature || *s.temperature == temperature) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("group {} sample {} was sampled at temperature {:g}, and "
                          "rollout.rollout_temperature is {:g}",
                          s.group, s.sample, *s.temperature, temperature),
              *s.temperature > 0
                  ? fmt::format("set rollout.rollout_temperature to {:g}", *s.temperature)
                  : "load samples drawn at a temperature above 0, not greedy ones",
              config.debug.load_rollout);
}

// Refuses samples of a dump that cannot be trained on.
void check_samples(const RunConfig& config, const model::ModelSpec& policy, int64_t max_positions,
                   std::span<const Sample> samples) {
  const std::string& dump = config.debug.load_rollout;
  for (auto [field, name] : {std::pair{&Sample::rollout_log_probs, "rollout_log_probs"},
                             {&Sample::old_log_probs, "old_log_probs"},
                             {&Sample::ref_log_probs, "ref_log_probs"}}) {
    check_uniform(samples, field, name);
  }
  if (config.rl.use_tis && !config.is_sft() && samples[0].rollout_log_probs.empty()) {
    throw Error(ErrorCode::kInput, "rl.use_tis needs rollout_log_probs, but the dump has none",
                "add them, or turn off use_tis", dump);
  }
  for (const auto& s : samples) {
    check_temperature(config, s);
    for (int32_t id : s.tokens) {
      if (id < 0 || id >= policy.vocab_size) {
        throw Error(ErrorCode::kInput,
                    fmt::format("token id {} of group {} sample {} is outside the vocabulary of {}",
                                id, s.group, s.sample, policy.vocab_size),
                    "load a dump with token ids of this model's tokenizer", dump);
      }
    }
    if (static_cast<int64_t>(s.tokens.size()) > max_positions) {
      throw Error(
          ErrorCode::kInput,
          fmt::format("group {} sample {} has {} tokens, but the model supports {} positions",
                      s.group, s.sample, s.tokens.size(), max_positions),
          "remove it from the dump", dump);
    }
  }
}

}  // namespace

std::optional<Rollout> draw_samples(const Session& session, RolloutSide& rollout_side,
                                    const model::ModelSpec& policy, const Progress& progress) {
  observe::Span span("rollout");
  Rollout rollout;
  rollout.index = progress.next_rollout;
  rollout.is_generated = rollout_side.source->is_generated();
  if (rollout_side.engine) rollout_side.engine->reset_stats();
  const auto draw = [&] {
    DrawnSamples drawn = rollout_side.source->next(rollout.index, progress.optimizer_steps);
    rollout.samples = std::move(drawn.samples);
    rollout.num_drawn_groups = drawn.num_drawn_groups;
    rollout.num_generated_tokens = drawn.num_generated_tokens;
    rollout.longest_response = drawn.longest_response;
    rollout.drop_reasons = std::move(drawn.drop_reasons);
  };
  try {
    if (rollout.is_generated) draw();  // collective
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    if (session.is_root())
      log_warn("rollout {} was interrupted by a signal: its samples are discarded", rollout.index);
    return std::nullopt;
  }
  dist::run_agreed(session.communicator, [&] {
    if (!rollout.is_generated) draw();
    rollout.samples_per_step =
        find_samples_per_step(session.config, rollout.index, rollout.samples.size());
    check_samples(session.config, policy, rollout_side.max_positions, rollout.samples);
    rollout.is_all_sampled = is_all_sampled(rollout.samples);
    if (session.config.debug.save_rollout.empty() || !session.is_root()) return;
    make_directories(session.config.debug.save_rollout);
    save_rollout(join_path(session.config.debug.save_rollout,
                           fmt::format("rollout_{:06}.jsonl", rollout.index)),
                 rollout.samples);
  });
  return rollout;
}

void hand_over_weights(const Session& session, RolloutSide& rollout_side) {
  observe::Span span("update_weights");
  if (!rollout_side.hand_over) return;
  const model::WeightTraffic traffic = rollout_side.hand_over->move();
  if (rollout_side.engine) rollout_side.engine->on_weights_updated();
  std::string line =
      fmt::format("weights handed over in {:.2f} ms: {} aliased, {} copied, {} sent, {} received",
                  span.seconds() * 1e3, format_bytes(static_cast<double>(traffic.aliased)),
                  format_bytes(static_cast<double>(traffic.copied)),
                  format_bytes(static_cast<double>(traffic.sent)),
                  format_bytes(static_cast<double>(traffic.received)));
  const bool is_checked = session.config.debug.check_weight_hash;
  if (is_checked)
    line += fmt::format("; hash {:016x} on both sides",
                        rollout_side.hand_over->check(session.communicator));
  log_line(is_checked ? LogLevel::kInfo : LogLevel::kDebug, line);
}

bool run_evaluation(const Session& session, RolloutSide& rollout_side, int64_t optimizer_steps,
                    int64_t rollout, observe::MetricRow& row) {
  const std::string when =
      rollout < 0 ? "before training" : fmt::format("after rollout {}", rollout);
  if (rollout_side.engine) rollout_side.engine->on_weights_updated();
  const auto samples_file = [&](const std::string& set) {
    return session.path(fmt::format("samples/eval_{}_{:06}.jsonl", set, rollout + 1));
  };
  try {
    rollout_side.last_eval =
        rl::evaluate(rollout_side.eval_sets, session.config, *rollout_side.generator,
                     *rollout_side.eval_grader, rollout_side.eval_stop_token_ids, rollout + 1,
                     optimizer_steps, samples_file, session.is_root(), row, stop_was_requested);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    rollout_side.last_eval.clear();
    if (session.is_root())
      log_warn("the evaluation {} was interrupted by a signal: not recorded", when);
    return false;
  }
  if (!session.is_root()) return true;
  row.set("eval/step", static_cast<double>(rollout));
  session.log->write_text(rollout, "evaluation", format_eval_markdown(rollout_side.last_eval));
  log_info("evaluation {}\n{}", when, format_eval_table(rollout_side.last_eval));
  return true;
}

void evaluate(const Session& session, RolloutSide& rollout_side, Progress& progress,
              Rollout& rollout) {
  // Take the spans and statistics before the evaluation, which uses the same counters.
  rollout.span_seconds = observe::take_span_seconds();
  if (rollout_side.engine) rollout.engine_stats = rollout_side.engine->stats();
  const int64_t interval = session.config.eval.eval_interval;
  if (interval == 0) return;
  if ((rollout.index + 1) % interval != 0 && !progress.is_done()) return;
  progress.evaluation_is_due = true;  // stays true if the evaluation fails
  progress.evaluation_is_due =
      !run_evaluation(session, rollout_side, progress.optimizer_steps, rollout.index, rollout.row);
  rollout.span_seconds["eval"] = observe::take_span_seconds()["eval"];
}

}  // namespace slimexx::rl

// The stages of one turn of the loop.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/io/safetensors.h"
#include "slimexx/model/boxes.h"
#include "slimexx/observe/span.h"
#include "slimexx/ops/policy_loss.h"
#include "stop_signal.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

// Per-token fields are all there or all absent: a dump in which only some samples bring one is
// refused.
void check_uniform(std::span<const Sample> samples, std::vector<float> Sample::*field,
                   const char* name) {
  for (const auto& s : samples) {
    if ((s.*field).empty() != (samples[0].*field).empty()) {
      throw Error(
          ErrorCode::kInput,
          fmt::format("some samples have {}, group {} sample {} differs", name, s.group, s.sample),
          "give the field to all samples or to none", "rollout dump");
    }
  }
}

// All response tokens, masked or not: what was generated can be computed again.
LogProbComparison compare_log_probs(std::span<const Sample> samples) {
  LogProbComparison found;
  for (const auto& s : samples) {
    for (size_t t = 0; t < s.rollout_log_probs.size(); ++t) {
      const double diff = std::abs(double{s.old_log_probs[t]} - double{s.rollout_log_probs[t]});
      found.tokens += 1;
      if (diff == 0) continue;  // NaN differs
      found.mismatches += 1;
      found.sum_diff += diff;
      found.max_diff = std::max(found.max_diff, diff);
    }
  }
  return found;
}

// The configuration knows it, but for a dump, which brings as many samples as it has: those are cut
// into num_steps_per_rollout equal steps, or by global_batch_size.
size_t find_samples_per_step(const RunConfig& config, int64_t rollout, size_t num_samples) {
  const auto total = static_cast<int64_t>(num_samples);
  const int64_t steps = config.num_steps_per_rollout, batch = config.global_batch_size;
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

// The tensors of all parameters in f32, as read_values gives elements [begin, begin + n) of one.
template <class ReadValues>
void write_tensors(const std::string& path, const model::ParameterStore& store,
                   const ReadValues& read_values) {
  std::vector<io::TensorEntry> entries;
  const std::vector<model::TensorSource> sources = model::list_tensor_sources(store.infos());
  for (const auto& source : sources)
    entries.push_back({.name = source.name, .dtype = tensor::DType::kF32, .shape = source.shape});
  io::SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  std::vector<float> values;
  for (const auto& source : sources) {
    for (const auto& piece : source.pieces) {
      values.resize(static_cast<size_t>(piece.size));
      read_values(store.infos()[static_cast<size_t>(piece.parameter)], piece.in_parameter,
                  values.data(), piece.size);
      writer.write(values.data(), values.size() * 4);
    }
  }
  writer.finish();
}

}  // namespace

void TrainingRun::begin() {
  log_->write_status("running", next_rollout_);
  log_->write_text(next_rollout_, "config", observe::markdown_code(config_.resolved_yaml));
  if (next_rollout_ == 0 && config_.eval.eval_interval > 0 &&
      !config_.eval.skip_eval_before_train) {
    observe::MetricRow row;
    run_evaluation(-1, row);
    stop_if_asked();
    dist::run_agreed(communicator_, [&] {
      if (is_root()) log_->write_row(-1, row);
    });
  }
  observe::take_span_seconds();
}

Rollout TrainingRun::draw_samples() {
  observe::Span span("rollout");
  mark_whole_state();
  Rollout rollout;
  rollout.index = next_rollout_;
  if (engine_) engine_->reset_stats();
  rollout.samples = source_->next(rollout.index, optimizer_steps_);
  rollout.samples_per_step = find_samples_per_step(config_, rollout.index, rollout.samples.size());
  for (auto [field, name] : {std::pair{&Sample::rollout_log_probs, "rollout_log_probs"},
                             {&Sample::old_log_probs, "old_log_probs"},
                             {&Sample::ref_log_probs, "ref_log_probs"}}) {
    check_uniform(rollout.samples, field, name);
  }
  if (config_.rl.use_tis && !config_.is_sft() && rollout.samples[0].rollout_log_probs.empty()) {
    throw Error(ErrorCode::kInput, "rl.use_tis wants rollout_log_probs, and the dump has none",
                "give them, or turn use_tis off", config_.debug.load_rollout);
  }
  for (const auto& s : rollout.samples) {
    for (int32_t id : s.tokens) {
      if (id < 0 || id >= policy_.spec.vocab_size) {
        throw Error(ErrorCode::kInput,
                    fmt::format("token id {} of group {} sample {} is outside the vocabulary of {}",
                                id, s.group, s.sample, policy_.spec.vocab_size));
      }
    }
    if (static_cast<int64_t>(s.tokens.size()) > transformer_->max_positions()) {
      throw Error(ErrorCode::kInput,
                  fmt::format("group {} sample {} has {} tokens, the model knows {} positions",
                              s.group, s.sample, s.tokens.size(), transformer_->max_positions()));
    }
  }
  dist::run_agreed(communicator_, [&] {
    if (config_.debug.save_rollout.empty() || !is_root()) return;
    make_directories(config_.debug.save_rollout);
    save_rollout(
        join_path(config_.debug.save_rollout, fmt::format("rollout_{:06}.jsonl", rollout.index)),
        rollout.samples);
  });
  return rollout;
}

void TrainingRun::score_reference(Rollout& rollout) {
  if (config_.is_sft() || (!config_.rl.use_kl_loss && config_.rl.kl_coef == 0)) return;
  if (!rollout.samples[0].ref_log_probs.empty()) return;
  const int64_t interval = config_.rl.log_ref_kl_interval;
  if (config_.rl.logs_reference_only() && (interval == 0 || rollout.index % interval != 0)) return;
  if (reference_transformer_ == nullptr) {
    throw Error(ErrorCode::kInput, "a KL term wants ref_log_probs, and the dump has none",
                "give them, or name a reference by model.ref_load", config_.debug.load_rollout);
  }
  for (const auto& s : rollout.samples) {
    if (static_cast<int64_t>(s.tokens.size()) <= reference_transformer_->max_positions()) continue;
    throw Error(
        ErrorCode::kInput,
        fmt::format("group {} sample {} has {} tokens, the reference knows {} positions", s.group,
                    s.sample, s.tokens.size(), reference_transformer_->max_positions()),
        "leave longer samples out of the dump, or use another reference", config_.model.ref_load);
  }
  observe::Span span("ref_log_probs");
  if (reference_is_transient_) reference_.store = load_weights(reference_, gradient_bytes());
  auto scores =
      trainer_->compute_log_probs(*reference_transformer_, *reference_.store, rollout.samples);
  for (size_t i = 0; i < scores.size(); ++i)
    rollout.samples[i].ref_log_probs = std::move(scores[i].log_probs);
  if (reference_is_transient_) {
    reference_.store.reset();
    trainer_->clear_gradients();
  }
}

void TrainingRun::score_old_policy(Rollout& rollout) {
  if (config_.is_sft() || !rollout.samples[0].old_log_probs.empty()) return;
  const bool several_steps = rollout.samples.size() > rollout.samples_per_step;
  // In the first step the old log-probs are the current ones; in later steps those of the rollout,
  // by exactness, if it was made here. The first step compares its tokens as it goes; now and then
  // those of the later steps are compared too.
  const bool exact = source_->is_generated() && config_.numerics.on_logprob_mismatch == "fail";
  const int64_t interval = config_.numerics.check_interval;
  const bool is_due =
      source_->is_generated() && several_steps && interval > 0 && rollout.index % interval == 0;
  const bool check = config_.numerics.recompute_old_log_probs || is_due;
  // A KL in the reward wants them before training, from whoever has them.
  const bool reward_wants = config_.rl.kl_coef != 0 && rollout.samples[0].rollout_log_probs.empty();
  if (!check && !reward_wants && (!several_steps || exact)) {
    if (several_steps) {
      for (auto& s : rollout.samples) s.old_log_probs = s.rollout_log_probs;
    }
    return;
  }
  observe::Span span("log_probs");
  auto scores = trainer_->compute_log_probs(*transformer_, *policy_.store, rollout.samples);
  for (size_t i = 0; i < scores.size(); ++i)
    rollout.samples[i].old_log_probs = std::move(scores[i].log_probs);
  if (!check || !source_->is_generated()) return;
  rollout.comparison = compare_log_probs(rollout.samples);
  report_mismatch(rollout.index, *rollout.comparison);
}

// Training and generation disagree: by numerics.on_logprob_mismatch an error, a warning, or
// nothing.
void TrainingRun::report_mismatch(int64_t rollout, const LogProbComparison& found) const {
  if (found.mismatches == 0 || config_.numerics.on_logprob_mismatch == "ignore") return;
  const std::string what = fmt::format(
      "rollout {}: {} of {} training log-probs differ from those of generation, by up to {:.3g}",
      rollout, found.mismatches, found.tokens, found.max_diff);
  if (config_.numerics.on_logprob_mismatch == "fail") {
    throw dist::AgreedError(
        Error(ErrorCode::kCheck, what,
              "report it; numerics.on_logprob_mismatch: warn goes on regardless"));
  }
  if (is_root()) log_warn("{}", what);
}

void TrainingRun::estimate_advantages(Rollout& rollout) {
  if (config_.is_sft()) return;
  Advantages advantages = compute_advantages(rollout.samples, config_.rl);
  for (size_t i = 0; i < advantages.size(); ++i)
    rollout.samples[i].advantages = std::move(advantages[i]);
}

train::StepLoss TrainingRun::step_loss(const Rollout& rollout) const {
  const RlOptions& rl = config_.rl;
  train::StepLoss loss;
  loss.per_token_loss = rl.per_token_loss;
  if (config_.is_sft()) {
    loss.policy.kind = ops::LossKind::kSft;
    return loss;
  }
  loss.policy = {.kind = find_estimator(rl.advantage_estimator)->loss,
                 .eps_clip = static_cast<float>(rl.eps_clip),
                 .eps_clip_high = static_cast<float>(rl.eps_clip_high.value_or(rl.eps_clip)),
                 .eps_clip_c = static_cast<float>(rl.eps_clip_c.value_or(0)),
                 .entropy_coef = static_cast<float>(rl.entropy_coef),
                 .use_kl = rl.use_kl_loss && !rollout.samples[0].ref_log_probs.empty(),
                 .kl_kind = parse_kl_kind(rl.kl_loss_type),
                 .kl_coef = static_cast<float>(rl.kl_loss_coef),
                 .unbiased_kl = rl.use_unbiased_kl,
                 .tis = !rl.use_tis             ? ops::TisMode::kOff
                        : rl.tis_mode == "mask" ? ops::TisMode::kMask
                                                : ops::TisMode::kTruncate,
                 .tis_clip = static_cast<float>(rl.tis_clip),
                 .tis_clip_low = static_cast<float>(rl.tis_clip_low)};
  return loss;
}

train::StepResult TrainingRun::run_step(const Rollout& rollout, size_t begin, size_t end,
                                        size_t step) {
  const auto samples = std::span(rollout.samples).subspan(begin, end - begin);
  const int64_t decay_steps =
      config_.optimizer.lr_decay_iters.value_or(num_rollouts_ * config_.num_steps_per_rollout);
  const bool dumps = rollout.index == 0 && step == 0;
  const auto before_update = [&] {
    if (dumps && !config_.debug.dump_gradients.empty()) dump_gradients();
  };
  // A skipped step leaves the schedule where it is, as Megatron's does.
  learning_rate_ =
      train::learning_rate(config_.optimizer, optimizer_steps_ - skipped_steps_, decay_steps);
  const auto result = trainer_->step(samples, step_loss(rollout), learning_rate_, before_update);
  if (!result.skipped) whole_state_.reset();
  if (dumps && !config_.debug.dump_weights.empty()) dump_weights();
  ++optimizer_steps_;
  skipped_in_a_row_ = result.skipped ? skipped_in_a_row_ + 1 : 0;
  if (result.skipped) {
    ++skipped_steps_;
    if (is_root())
      log_warn("rollout {} step {}: NaN or Inf gradients, the update is skipped ({} so far)",
               rollout.index, step, skipped_steps_);
    if (skipped_in_a_row_ > config_.train.max_skipped_steps) {
      throw dist::AgreedError(Error(
          ErrorCode::kRun,
          fmt::format("{} optimizer steps in a row had NaN or Inf gradients", skipped_in_a_row_),
          "lower optimizer.lr, look at the samples of the last rollout, or raise "
          "train.max_skipped_steps"));
    }
  }
  return result;
}

void TrainingRun::update_policy(Rollout& rollout) {
  observe::Span span("actor_train");
  const auto total = rollout.samples.size();
  const size_t per_step = rollout.samples_per_step;
  for (size_t begin = 0, step = 0; begin < total; begin += per_step, ++step) {
    rollout.steps.push_back(run_step(rollout, begin, std::min(total, begin + per_step), step));
  }
  rollout.param_norm = trainer_->weight_norm();
  ++next_rollout_;
  mark_whole_state();
}

void TrainingRun::check_exactness(const Rollout& rollout) const {
  if (!source_->is_generated()) return;
  const train::StepResult& first = rollout.steps.front();
  report_mismatch(rollout.index, {.tokens = first.metric(ops::LossMetric::kTokens),
                                  .mismatches = first.metric(ops::LossMetric::kLogProbMismatches),
                                  .max_diff = first.metric(ops::LossMetric::kLogProbMaxDiff)});
}

void TrainingRun::hand_over_weights(Rollout&) {
  observe::Span span("update_weights");
  // The engine reads the trainer's weights in place: what is left is to forget what the old ones
  // computed.
  if (engine_) engine_->on_weights_updated();
}

void TrainingRun::run_evaluation(int64_t rollout, observe::MetricRow& row) {
  const std::string when =
      rollout < 0 ? "before training" : fmt::format("after rollout {}", rollout);
  if (engine_) engine_->on_weights_updated();
  try {
    last_eval_ =
        rl::evaluate(eval_sets_, config_, *generator_, *eval_grader_, stop_token_ids_, rollout + 1,
                     optimizer_steps_, run_path("samples"), is_root(), row, stop_was_requested);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) throw;
    last_eval_.clear();
    if (is_root()) log_warn("the evaluation {} was cut off by a signal: not recorded", when);
    return;
  }
  if (first_eval_.empty()) first_eval_ = last_eval_;
  if (!is_root()) return;
  row.set("eval/step", static_cast<double>(rollout));
  log_->write_text(rollout, "evaluation", format_eval_markdown(last_eval_));
  log_info("evaluation {}\n{}", when, format_eval_table(last_eval_));
}

void TrainingRun::evaluate(Rollout& rollout) {
  const int64_t interval = config_.eval.eval_interval;
  if (interval == 0) return;
  if ((rollout.index + 1) % interval == 0 || is_done()) run_evaluation(rollout.index, rollout.row);
}

Json TrainingRun::checkpoint_state(int64_t completed_rollouts) const {
  Json state;
  state["next_rollout"] = completed_rollouts;
  state["optimizer_steps"] = optimizer_steps_;
  state["adam_steps"] = trainer_->optimizer().num_steps();
  state["skipped_steps"] = skipped_steps_;
  state["skipped_in_a_row"] = skipped_in_a_row_;
  state["seed"] = config_.data.seed;  // with next_rollout the whole random-number state
  state["data"] = source_->state();
  state["partial_samples"] = Json::array();
  return state;
}

void TrainingRun::mark_whole_state() { whole_state_ = checkpoint_state(next_rollout_); }

void TrainingRun::save_checkpoint(int64_t completed_rollouts) {
  save_checkpoint(completed_rollouts, checkpoint_state(completed_rollouts));
}

void TrainingRun::save_checkpoint(int64_t completed_rollouts, const Json& state) {
  observe::Span span("save_model");
  checkpoints_->save(completed_rollouts, state, *policy_.store, trainer_->optimizer());
  saved_rollouts_ = completed_rollouts;
}

// After an error that all ranks have: saves the last state that stands between two rollouts, unless
// that is lost or saved already. What goes wrong here is only logged.
void TrainingRun::save_after_failure() noexcept {
  try {
    checkpoints_->finish_pending();
    if (!whole_state_) return;
    const int64_t rollouts = whole_state_->at("next_rollout").get<int64_t>();
    if (rollouts == 0 || rollouts == saved_rollouts_) return;
    if (!has_finite_weights(trainer_->optimizer(), communicator_)) return;  // nothing to go on from
    save_checkpoint(rollouts, *whole_state_);
    checkpoints_->finish_pending();
    if (is_root())
      log_info("the state after {} rollouts is saved; to continue: {}", rollouts, resume_command());
  } catch (const std::exception& error) {
    log_error("the state could not be saved: {}", error.what());
  }
}

void TrainingRun::save(const Rollout& rollout) {
  checkpoints_->poll();
  const int64_t interval = config_.checkpoint.save_interval;
  if (interval == 0) return;
  if ((rollout.index + 1) % interval == 0 || is_done()) save_checkpoint(rollout.index + 1);
}

void TrainingRun::stop_if_asked() {
  double asked[1] = {stop_was_requested() ? 1.0 : 0.0};
  communicator_.all_reduce_max(asked);
  if (asked[0] == 0 || is_done()) return;
  if (next_rollout_ == 0) {
    log_->write_status("interrupted", 0);
    throw Error(ErrorCode::kInterrupted,
                "stopped by a signal before the first rollout; there is nothing to save",
                start_command());
  }
  if (saved_rollouts_ != next_rollout_) save_checkpoint(next_rollout_);
  checkpoints_->finish_pending();
  log_->write_status("interrupted", next_rollout_);
  write_trace();
  throw Error(
      ErrorCode::kInterrupted,
      fmt::format("stopped by a signal after {} rollouts; the state is saved", next_rollout_),
      resume_command());
}

// A run whose end is not that of training must not end as if it were.
void TrainingRun::check_updates() const {
  const bool none_applied = optimizer_steps_ > 0 && skipped_steps_ == optimizer_steps_;
  if (!none_applied && skipped_in_a_row_ < 2) return;
  throw Error(
      ErrorCode::kRun,
      none_applied
          ? fmt::format("no update was applied: all {} had NaN or Inf gradients", optimizer_steps_)
          : fmt::format("training diverged: the last {} of {} updates had NaN or Inf "
                        "gradients",
                        skipped_in_a_row_, optimizer_steps_),
      "lower optimizer.lr, and look at the samples of the last rollouts");
}

void TrainingRun::write_trace() const {
  if (!config_.observe.trace) return;
  make_directories(run_path("trace"));
  observe::write_trace(run_path(fmt::format("trace/rank_{:03}.json", world_.rank())));
}

void TrainingRun::finish() {
  checkpoints_->finish_pending();
  check_updates();
  if (!config_.checkpoint.save_hf.empty() && is_root()) {
    export_hf(*policy_.store, policy_.spec, config_.model.hf_checkpoint,
              config_.checkpoint.save_hf);
    log_info("the model is in {}", config_.checkpoint.save_hf);
  }
  write_trace();
  const std::string warning =
      skipped_steps_ == 0 ? ""
                          : fmt::format("{} of {} updates were skipped for NaN or Inf gradients",
                                        skipped_steps_, optimizer_steps_);
  log_->write_status("done", next_rollout_, "", warning);
  if (!warning.empty() && is_root()) log_warn("{}", warning);
  if (is_root()) log_summary();
  communicator_.barrier();
}

void TrainingRun::fail(const std::string& what, bool is_agreed) noexcept {
  if (is_dry_run()) return;
  if (is_agreed || world_.size() == 1) save_after_failure();
  try {
    log_->write_failure(next_rollout_, what);
  } catch (const Error& error) {
    log_error("status.json: {}", error.message());
  }
}

void TrainingRun::dump_gradients() {
  trainer_->gather_gradients();
  if (!is_root()) return;
  make_directories(config_.debug.dump_gradients);
  write_tensors(join_path(config_.debug.dump_gradients, "gradients.safetensors"), *policy_.store,
                [&](const auto& info, int64_t begin, float* values, int64_t n) {
                  policy_.store->read_gradients(info, begin, values, n);
                });
}

void TrainingRun::dump_weights() const {
  if (!is_root()) return;
  make_directories(config_.debug.dump_weights);
  write_tensors(join_path(config_.debug.dump_weights, "weights.safetensors"), *policy_.store,
                [&](const auto& info, int64_t begin, float* values, int64_t n) {
                  policy_.store->read_weights(info, begin, values, n);
                });
}

}  // namespace slimexx::rl

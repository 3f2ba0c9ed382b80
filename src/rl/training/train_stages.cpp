// The stages of the trainer side: scoring, advantages, update.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rl/advantage/overlong.h"
#include "rl/training/stages.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/observe/span.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace {

// Compares all response tokens, masked or not: every generated token can be recomputed.
LogProbComparison compare_log_probs(std::span<const Sample> samples) {
  LogProbComparison found;
  for (const auto& s : samples) {
    for (size_t t = 0; t < s.rollout_log_probs.size(); ++t) {
      const double diff = std::abs(double{s.old_log_probs[t]} - double{s.rollout_log_probs[t]});
      found.tokens += 1;
      if (diff == 0) continue;  // NaN counts as a difference
      found.mismatches += 1;
      found.sum_diff += diff;
      found.max_diff = std::max(found.max_diff, diff);
    }
  }
  return found;
}

// Reports that training and generation disagree: an error, a warning or nothing, by
// numerics.on_logprob_mismatch.
void report_mismatch(const Session& session, int64_t rollout, const LogProbComparison& found) {
  if (found.mismatches == 0 || session.config.numerics.on_logprob_mismatch == "ignore") return;
  const std::string what = fmt::format(
      "rollout {}: {} of {} training log-probs differ from those of generation, by up to {:.3g}",
      rollout, found.mismatches, found.tokens, found.max_diff);
  if (session.config.numerics.on_logprob_mismatch == "fail") {
    throw dist::AgreedError(
        Error(ErrorCode::kCheck, what,
              "report this bug; numerics.on_logprob_mismatch: warn continues with a warning"));
  }
  if (session.is_root()) log_warn("{}", what);
}

void dump_gradients(const Session& session, TrainerSide& trainer_side) {
  trainer_side.trainer->gather_gradients();
  const std::string& folder = session.config.debug.dump_gradients;
  if (session.is_root()) make_directories(folder);
  write_gradients(*trainer_side.policy.store, trainer_side.policy.layout,
                  join_path(folder, "gradients.safetensors"), session.peers);
}

void dump_weights(const Session& session, const TrainerSide& trainer_side) {
  const std::string& folder = session.config.debug.dump_weights;
  if (session.is_root()) make_directories(folder);
  write_weights(*trainer_side.policy.store, trainer_side.policy.layout,
                join_path(folder, "weights.safetensors"), session.peers);
}

train::StepLoss step_loss(const RunConfig& config, const Rollout& rollout) {
  const RlOptions& rl = config.rl;
  train::StepLoss loss;
  loss.per_token_loss = rl.per_token_loss;
  loss.token_divisor = rl.loss_token_divisor.value_or(0);
  if (config.is_sft()) {
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
                 .tis_clip_low = static_cast<float>(rl.tis_clip_low),
                 .use_opsm = rl.use_opsm,
                 .opsm_delta = static_cast<float>(rl.opsm_delta),
                 .compare_masked = rollout.is_all_sampled};
  return loss;
}

// Text for errors about overflow: mentions the largest reward if it is far too large.
std::string describe_large_rewards(std::span<const Sample> samples) {
  constexpr double kLarge = 1e6;
  if (samples.empty()) return "";
  const auto size = [](const Sample& s) { return std::abs(s.reward); };
  const auto largest = std::ranges::max_element(samples, {}, size);
  if (!(size(*largest) > kLarge)) return "";
  return fmt::format("; the largest reward is {:.3g} in absolute value", largest->reward);
}

// Advantages are stored as float32, which large rewards can overflow.
void check_advantages(const Rollout& rollout) {
  for (const Sample& s : rollout.samples) {
    if (std::ranges::all_of(s.advantages, [](float a) { return std::isfinite(a); })) continue;
    throw dist::AgreedError(Error(  // all ranks have the same samples
        ErrorCode::kRun,
        fmt::format(
            "rollout {}: the advantage of group {} sample {} (reward {:.6g}) is not finite{}",
            rollout.index, s.group, s.sample, s.reward, describe_large_rewards(rollout.samples)),
        "scale the rewards down in the grader or its service", "reward.rm_type"));
  }
}

train::StepResult run_step(const Session& session, TrainerSide& trainer_side, Progress& progress,
                           const Rollout& rollout, size_t begin, size_t end, size_t step) {
  const auto samples = std::span(rollout.samples).subspan(begin, end - begin);
  const bool dumps = rollout.index == 0 && step == 0;
  const auto before_update = [&] {
    trainer_side.checkpoints->release_state();
    if (dumps && !session.config.debug.dump_gradients.empty())
      dump_gradients(session, trainer_side);
  };
  // As in Megatron, a skipped step does not advance the schedule.
  const double learning_rate =
      train::learning_rate(session.config.optimizer,
                           progress.optimizer_steps - progress.skipped_steps, progress.decay_steps);
  const auto result = trainer_side.trainer->step(samples, step_loss(session.config, rollout),
                                                 learning_rate, before_update);
  if (!result.skipped) progress.whole_state.reset();
  if (dumps && !session.config.debug.dump_weights.empty()) dump_weights(session, trainer_side);
  ++progress.optimizer_steps;
  progress.skipped_in_a_row = result.skipped ? progress.skipped_in_a_row + 1 : 0;
  if (result.skipped) {
    ++progress.skipped_steps;
    if (session.is_root())
      log_warn(
          "rollout {} step {}: NaN or Inf gradients, the optimizer step is skipped ({} so far){}",
          rollout.index, step, progress.skipped_steps, describe_large_rewards(samples));
    if (progress.skipped_in_a_row > session.config.train.max_skipped_steps) {
      throw dist::AgreedError(
          Error(ErrorCode::kRun,
                fmt::format("{} optimizer steps in a row had NaN or Inf gradients{}",
                            progress.skipped_in_a_row, describe_large_rewards(samples)),
                "lower optimizer.lr, inspect the samples of the last rollout, or raise "
                "train.max_skipped_steps"));
    }
  }
  return result;
}

}  // namespace

void run_on_trainers(const Session& session, Progress& progress,
                     const std::function<void()>& work) {
  if (!session.roles.are_apart) return work();
  std::optional<Error> failure;
  try {
    if (session.trains()) work();
  } catch (const dist::AgreedError& error) {
    failure = error;
  }
  constexpr int kRoot = 0;  // rank 0 trains
  const std::string packed =
      dist::broadcast_bytes(session.communicator, failure ? dist::pack_error(*failure) : "", kRoot);
  if (!packed.empty())
    throw dist::AgreedError(failure ? *failure
                                    : dist::unpack_error(packed, kRoot, session.world.size()));
  int64_t counters[] = {progress.next_rollout, progress.optimizer_steps, progress.skipped_steps,
                        progress.skipped_in_a_row};
  session.communicator.broadcast(
      {}, tensor::Tensor(counters, tensor::DType::kI64, {}, {std::ssize(counters)}), kRoot);
  progress.next_rollout = counters[0];
  progress.optimizer_steps = counters[1];
  progress.skipped_steps = counters[2];
  progress.skipped_in_a_row = counters[3];
}

void score_reference(const Session& session, TrainerSide& trainer_side, Rollout& rollout) {
  if (session.config.is_sft() || (!session.config.rl.use_kl_loss && session.config.rl.kl_coef == 0))
    return;
  if (!rollout.samples[0].ref_log_probs.empty()) return;
  const int64_t interval = session.config.rl.log_ref_kl_interval;
  if (session.config.rl.logs_reference_only() && (interval == 0 || rollout.index % interval != 0))
    return;
  FrozenModel* reference = find_frozen(trainer_side.frozen, kReference);
  if (reference == nullptr) {
    throw Error(ErrorCode::kInput, "a KL term needs ref_log_probs, but the dump has none",
                "add them, or set model.ref_load to a reference model",
                session.config.debug.load_rollout);
  }
  const int64_t max_positions = reference->decoders[0]->max_positions();
  for (const auto& s : rollout.samples) {
    if (static_cast<int64_t>(s.tokens.size()) <= max_positions) continue;
    throw Error(
        ErrorCode::kInput,
        fmt::format("group {} sample {} has {} tokens, but the reference supports {} positions",
                    s.group, s.sample, s.tokens.size(), max_positions),
        "remove longer samples from the dump, or use another reference",
        session.config.model.ref_load);
  }
  observe::Span span("ref_log_probs");
  auto scores = score_frozen(session, trainer_side, *reference, rollout.samples);
  for (size_t i = 0; i < scores.size(); ++i)
    rollout.samples[i].ref_log_probs = std::move(scores[i].log_probs);
}

void score_old_policy(const Session& session, TrainerSide& trainer_side, Rollout& rollout) {
  if (session.config.is_sft() || !rollout.samples[0].old_log_probs.empty()) return;
  const bool several_steps = rollout.samples.size() > rollout.samples_per_step;
  // In the first step the old log-probs are the current ones. In later steps they are those of the
  // rollout, if this program generated it and log-probs must match exactly. The first step compares
  // its own tokens; every check_interval rollouts, the tokens of the later steps are compared too.
  const bool exact = rollout.is_generated && session.config.numerics.on_logprob_mismatch == "fail";
  const int64_t interval = session.config.numerics.check_interval;
  const bool is_due =
      rollout.is_generated && several_steps && interval > 0 && rollout.index % interval == 0;
  const bool check = session.config.numerics.recompute_old_log_probs || is_due;
  // A KL in the reward needs log-probs before training. They come from the trainer if the rollout
  // has none, or if only the engines compute in FP8: the reference computes as the trainer does.
  const bool is_computed_alike = session.config.numerics.fp8 != "rollout_only";
  const bool reward_wants = session.config.rl.kl_coef != 0 &&
                            (rollout.samples[0].rollout_log_probs.empty() || !is_computed_alike);
  if (!check && !reward_wants && (!several_steps || exact)) {
    if (several_steps) {
      for (auto& s : rollout.samples) s.old_log_probs = s.rollout_log_probs;
    }
    return;
  }
  observe::Span span("log_probs");
  auto scores = trainer_side.trainer->compute_log_probs(
      borrow(trainer_side.decoders), *trainer_side.policy.store, rollout.samples);
  for (size_t i = 0; i < scores.size(); ++i)
    rollout.samples[i].old_log_probs = std::move(scores[i].log_probs);
  if (!check || !rollout.is_generated) return;
  rollout.comparison = compare_log_probs(rollout.samples);
  report_mismatch(session, rollout.index, *rollout.comparison);
}

void estimate_advantages(const RunConfig& config, Rollout& rollout) {
  if (config.is_sft()) return;
  treat_overlong(config, rollout.samples);
  Advantages advantages = compute_advantages(rollout.samples, config.rl);
  for (size_t i = 0; i < advantages.size(); ++i)
    rollout.samples[i].advantages = std::move(advantages[i]);
  check_advantages(rollout);
}

void update_policy(const Session& session, TrainerSide& trainer_side, Progress& progress,
                   Rollout& rollout) {
  observe::Span span("actor_train");
  if (session.config.optimizer.reset_optimizer_states) {
    trainer_side.checkpoints->release_state();
    trainer_side.trainer->optimizer().reset_moments();
  }
  const auto total = rollout.samples.size();
  const size_t per_step = rollout.samples_per_step;
  for (size_t begin = 0, step = 0; begin < total; begin += per_step, ++step) {
    rollout.steps.push_back(run_step(session, trainer_side, progress, rollout, begin,
                                     std::min(total, begin + per_step), step));
  }
  rollout.param_norm = trainer_side.trainer->weight_norm();
  ++progress.next_rollout;
}

void check_exactness(const Session& session, const Rollout& rollout) {
  if (!rollout.is_generated) return;
  const train::StepResult& first = rollout.steps.front();
  report_mismatch(session, rollout.index,
                  {.tokens = first.metric(ops::LossMetric::kComparedTokens),
                   .mismatches = first.metric(ops::LossMetric::kLogProbMismatches),
                   .max_diff = first.metric(ops::LossMetric::kLogProbMaxDiff)});
}

}  // namespace slimexx::rl

#include "rl/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kLeastLogitsBytes = int64_t{1} << 28;

std::string gib(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string line(int64_t bytes, const std::string& what) {
  return fmt::format("{:>14}  {}\n", gib(bytes), what);
}

[[noreturn]] void throw_too_little(const MemoryPlan& plan, const std::string& what,
                                   const std::string& hint) {
  throw Error(ErrorCode::kEnvironment, fmt::format("{}\n{}", what, format_memory(plan)), hint,
              "rollout.mem_fraction_static");
}

void check_plan(const MemoryPlan& plan) {
  const MemoryBudget& b = plan.budget;
  const int64_t left = std::max<int64_t>(plan.left_bytes(), 0);
  if (b.activations.least > left)
    throw_too_little(
        plan,
        fmt::format("the largest microbatch needs at least {} for activations, but {} are left",
                    gib(b.activations.least), gib(left)),
        "lower train.max_tokens_per_gpu or rollout.rollout_max_response_len, use more "
        "ranks or optimizer.state_dtype: bfloat16, or raise "
        "rollout.mem_fraction_static");
  if (b.min_cache_bytes > left)
    throw_too_little(plan,
                     fmt::format("the KV cache of one sequence needs {}, but {} are left",
                                 gib(b.min_cache_bytes), gib(left)),
                     "lower rollout.rollout_max_response_len, use more ranks, or raise "
                     "rollout.mem_fraction_static");
  if (b.cache_is_given && b.max_cache_bytes > left)
    throw_too_little(plan,
                     fmt::format("the configuration asks for a KV cache of {}, but {} are left",
                                 gib(b.max_cache_bytes), gib(left)),
                     "leave out rollout.kv_cache_gib and rollout.max_total_tokens, or lower them");
}

}  // namespace

int64_t MemoryPlan::share_bytes() const {
  return static_cast<int64_t>(budget.mem_fraction * static_cast<double>(budget.device_bytes));
}

int64_t MemoryPlan::left_bytes() const {
  return share_bytes() - budget.used_bytes - budget.workspace_bytes;
}

int64_t missing_bytes(const MemoryBudget& b) {
  const int64_t cache = b.cache_is_given ? b.max_cache_bytes : b.min_cache_bytes;
  const int64_t least = std::max(b.activations.least, cache);
  return std::max<int64_t>(least - MemoryPlan{.budget = b}.left_bytes(), 0);
}

int64_t samples_per_microbatch(const RunConfig& config) {
  // The number of samples in a dump is unknown; no microbatch is planned for more samples than
  // this.
  constexpr int64_t kMostUnknown = 1 << 16;
  const int64_t per_step = config.global_batch_size > 0 ? config.global_batch_size : kMostUnknown;
  return config.train.use_dynamic_batch_size ? per_step
                                             : std::min(per_step, config.train.micro_batch_size);
}

int64_t samples_per_scored_microbatch(const RunConfig& config) {
  if (!config.train.use_dynamic_batch_size) return config.train.micro_batch_size;
  const bool knows_rollouts = config.global_batch_size > 0 && config.debug.load_rollout.empty();
  if (!knows_rollouts) return INT32_MAX;
  return config.global_batch_size * std::max<int64_t>(config.num_steps_per_rollout, 1);
}

MemoryBudget add_needs(MemoryBudget budget, const MemoryNeeds& needs) {
  const RunConfig& config = needs.config;
  if (needs.engine) {
    budget.workspace_bytes = needs.engine->workspace_bytes;
    budget.min_cache_bytes = needs.engine->min_cache_bytes();
    budget.max_cache_bytes = needs.engine->max_cache_bytes();
    budget.cache_is_given = config.rollout.kv_cache_gib || config.rollout.max_total_tokens > 0;
  }
  if (needs.trainer == nullptr) return budget;
  budget.has_unknown_samples = !needs.longest;
  const int64_t longest = needs.longest.value_or(config.train.max_tokens_per_gpu);
  const int64_t num_samples = samples_per_microbatch(config);
  const int64_t left = MemoryPlan{.budget = budget}.left_bytes();
  for (;;) {
    budget.activations = needs.trainer->plans().plan_activations(longest, num_samples);
    const int64_t limit = needs.trainer->plans().max_logits_bytes();
    if (budget.activations.least <= left || config.train.max_logits_gib ||
        limit <= kLeastLogitsBytes)
      break;
    needs.trainer->plans().limit_logits(limit / 2);
  }
  const int64_t num_scored = samples_per_scored_microbatch(config);
  int64_t scoring = config.is_sft() ? 0 : needs.trainer->plans().plan_scoring(longest, num_scored);
  if (needs.plan_scoring) scoring = std::max(scoring, needs.plan_scoring(longest, num_scored));
  budget.activations.least = std::max(budget.activations.least, scoring);
  budget.activations.most = std::max(budget.activations.most, scoring);
  return budget;
}

MemoryPlan plan_memory(MemoryBudget budget) {
  MemoryPlan plan{.budget = std::move(budget)};
  const MemoryBudget& b = plan.budget;
  check_plan(plan);
  const int64_t left = plan.left_bytes();
  const int64_t most_activations = b.has_unknown_samples ? left : b.activations.most;
  plan.pool_bytes = std::min(left, std::max(b.max_cache_bytes, most_activations));
  plan.cache_bytes = std::min(plan.pool_bytes, b.max_cache_bytes);
  return plan;
}

std::string format_memory(const MemoryPlan& plan) {
  const MemoryBudget& b = plan.budget;
  std::string text =
      line(plan.share_bytes(), fmt::format("usable: rollout.mem_fraction_static {} of {}",
                                           b.mem_fraction, gib(b.device_bytes)));
  int64_t others = b.used_bytes;
  for (const auto& [what_for, bytes] : b.live) {
    text += line(bytes, what_for);
    others -= bytes;
  }
  text += line(others, "driver, libraries and other processes");
  if (b.min_cache_bytes > 0)
    text += line(b.workspace_bytes, "engine: batches and workspace of a step");
  if (plan.pool_bytes > 0) {
    text +=
        line(plan.pool_bytes, b.min_cache_bytes == 0    ? "activations"
                              : b.activations.least > 0 ? "KV cache, or activations while training"
                                                        : "KV cache");
    if (plan.cache_bytes > 0 && plan.cache_bytes < plan.pool_bytes)
      text += line(plan.cache_bytes, "  of that, KV cache");
  } else {
    text += line(std::max<int64_t>(plan.left_bytes(), 0), "left");
  }
  if (b.activations.least == 0) return text;
  text += line(b.activations.least, "  activations of the largest microbatch, at least");
  if (b.activations.in_flight > 1) {
    text += line(b.activations.kept,
                 fmt::format("    kept for backward, for each of {} microbatches in flight",
                             b.activations.in_flight));
    text += line(b.activations.scratch, "    workspace of an operation");
  }
  if (b.activations.num_deferred > 0)
    text +=
        line(b.activations.deferred,
             fmt::format("    operands of deferred weight gradients, for each of {} microbatches",
                         b.activations.num_deferred));
  text += line(b.activations.most, "  with all activations kept for backward");
  return text;
}

}  // namespace slimexx::rl

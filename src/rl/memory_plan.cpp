#include "memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"

namespace slimexx::rl {
namespace {

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
    throw_too_little(plan,
                     fmt::format("the largest microbatch takes at least {} of activations, and {} "
                                 "are left",
                                 gib(b.activations.least), gib(left)),
                     "lower train.max_tokens_per_gpu or rollout.rollout_max_response_len, use more "
                     "ranks or optimizer.state_dtype: bfloat16, or raise "
                     "rollout.mem_fraction_static");
  if (b.min_cache_bytes > left)
    throw_too_little(plan,
                     fmt::format("keys and values of one sequence take {}, and {} are left",
                                 gib(b.min_cache_bytes), gib(left)),
                     "lower rollout.rollout_max_response_len, use more ranks, or raise "
                     "rollout.mem_fraction_static");
  if (b.cache_is_given && b.max_cache_bytes > left)
    throw_too_little(plan,
                     fmt::format("the configuration asks for {} of keys and values, and {} are "
                                 "left",
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
      line(plan.share_bytes(), fmt::format("may be taken: rollout.mem_fraction_static {} of {}",
                                           b.mem_fraction, gib(b.device_bytes)));
  int64_t others = b.used_bytes;
  for (const auto& [what_for, bytes] : b.live) {
    text += line(bytes, what_for);
    others -= bytes;
  }
  text += line(others, "driver, libraries and other processes");
  if (b.min_cache_bytes > 0)
    text += line(b.workspace_bytes, "engine: batches, and what a step takes");
  if (plan.pool_bytes > 0) {
    text += line(plan.pool_bytes, b.min_cache_bytes > 0
                                      ? "keys and values, and in turn with them activations"
                                      : "activations");
    if (plan.cache_bytes > 0 && plan.cache_bytes < plan.pool_bytes)
      text += line(plan.cache_bytes, "  of that keys and values");
  } else {
    text += line(std::max<int64_t>(plan.left_bytes(), 0), "left");
  }
  text += line(b.activations.least, "  activations of the largest microbatch at the least");
  text += line(b.activations.most, "  and with everything kept for backward");
  return text;
}

}  // namespace slimexx::rl

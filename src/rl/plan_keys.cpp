#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "plan_stage.h"

namespace slimexx::rl {

std::string choose_keys(const MemoryBudget& budget, int64_t engine_bytes, int64_t missing_bytes) {
  constexpr double kMostFraction = 0.95;
  const double fraction = budget.mem_fraction + static_cast<double>(missing_bytes) /
                                                    static_cast<double>(budget.device_bytes);
  if (fraction <= kMostFraction)
    return fmt::format("rollout.mem_fraction_static: {:.2f}", std::ceil(100 * fraction) / 100);
  int64_t state = 0;
  for (const auto& [name, bytes] : budget.live)
    if (name == "optimizer state") state = bytes;
  const bool trains = budget.activations.least > 0;
  const int64_t weights = trains ? budget.used_bytes - state - engine_bytes : 0;
  std::vector<std::pair<int64_t, std::string>> takers{
      {budget.activations.least,
       "lower train.max_tokens_per_gpu and rollout.rollout_max_response_len, or raise "
       "parallel.context_parallel_size"},
      {state,
       "set optimizer.optimizer_cpu_offload: true, or optimizer.state_dtype: bfloat16, or use "
       "more ranks (--gpus), which share optimizer state"},
      {budget.cache_is_given ? budget.max_cache_bytes : 0,
       "leave out rollout.kv_cache_gib and rollout.max_total_tokens, or lower them"},
      {engine_bytes,
       "raise rollout.rollout_num_gpus_per_engine and ep_size: an engine's ranks share its "
       "weights"},
      {weights,
       "raise parallel.pipeline_model_parallel_size, tensor_model_parallel_size or "
       "expert_model_parallel_size"}};
  std::ranges::stable_sort(takers, std::greater{}, [](const auto& t) { return t.first; });
  std::string keys;
  int64_t sum = 0;
  for (const auto& [bytes, advice] : takers) {
    if (sum > missing_bytes || bytes == 0) break;
    keys += (keys.empty() ? "" : "; ") + advice;
    sum += bytes;
  }
  return keys;
}

}  // namespace slimexx::rl

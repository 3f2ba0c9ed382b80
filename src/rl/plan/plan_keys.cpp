#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "rl/plan/plan_stage.h"
#include "slimexx/base/strings.h"

namespace slimexx::rl {

namespace {

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string advise_state(const RunConfig& config, int64_t state_bytes) {
  std::string text = fmt::format("set optimizer.optimizer_cpu_offload: true, which frees {}",
                                 size_text(state_bytes));
  if (config.optimizer.state_dtype ==
      "float32")  // the two moments are two of three arrays; bf16 halves each
    text += fmt::format(", or optimizer.state_dtype: bfloat16, which frees {}",
                        size_text(state_bytes / 3));
  text += config.parallel.actor_num_gpus
              ? ", or raise parallel.actor_num_gpus and the number of ranks"
              : ", or use more ranks (--gpus)";
  return text + fmt::format(": twice as many frees {}", size_text(state_bytes / 2));
}

// Single changes to the request that may save memory. None changes the results of the run.
class Changes {
 public:
  Changes(const PlanRequest& request, const PlannedLengths& lengths)
      : request_(request), config_(request.config), lengths_(lengths) {}

  std::vector<PlanChange> list() {
    list_states();
    const size_t num_states = changes_.size();
    list_tokens();
    const size_t num_singles = changes_.size();
    list_sizes();
    if (!config_.parallel.actor_num_gpus && config_.parallel.colocate) {
      PlanChange& more = add(fmt::format("twice the ranks (--gpus {})", 2 * request_.num_ranks));
      more.request.num_ranks *= 2;
    }
    for (size_t state = 0; state < num_states; ++state)
      for (size_t tokens = num_states; tokens < num_singles; ++tokens)
        add_pair(changes_[state], changes_[tokens]);
    return std::move(changes_);
  }

 private:
  PlanChange& add(const std::string& text) {
    changes_.push_back({.text = text, .request = request_});
    return changes_.back();
  }

  void list_states() {
    const train::OptimizerOptions& optimizer = config_.optimizer;
    if (optimizer.optimizer_cpu_offload) return;
    add("optimizer.optimizer_cpu_offload: true").request.config.optimizer.optimizer_cpu_offload =
        true;
    if (optimizer.state_dtype == "float32")
      add("optimizer.state_dtype: bfloat16").request.config.optimizer.state_dtype = "bfloat16";
  }

  // Smaller microbatches. The longest sequence must fit on the ranks that share it. Below that size
  // only more context-parallel ranks help, with fewer tokens on each.
  void list_tokens() {
    if (!config_.train.use_dynamic_batch_size) return;
    const dist::GridSizes sizes = grid_sizes(config_.parallel);
    const int64_t trainers = make_rank_roles(config_.parallel, request_.num_ranks).num_trainers;
    const int64_t most = config_.train.max_tokens_per_gpu;
    for (const int64_t factor : {1, 2, 4, 8}) {
      const int64_t cp = sizes.cp * factor, least = least_tokens(cp);
      if (trainers % (cp * sizes.tp * sizes.pp) != 0) continue;
      for (int64_t tokens = most / std::max<int64_t>(factor, 2);; tokens /= 2) {
        if (std::max(tokens, least) < most) add_tokens(cp, std::max(tokens, least));
        if (tokens <= least) break;
      }
    }
  }

  // Shard the weights over more ranks.
  void list_sizes() {
    ParallelOptions twice = config_.parallel;
    for (const auto& [key, size] :
         {std::pair{"expert_model_parallel_size", &twice.expert_model_parallel_size},
          {"pipeline_model_parallel_size", &twice.pipeline_model_parallel_size},
          {"tensor_model_parallel_size", &twice.tensor_model_parallel_size}}) {
      *size *= 2;
      add(fmt::format("parallel.{}: {}", key, *size)).request.config.parallel = twice;
      *size /= 2;
    }
  }

  int64_t least_tokens(int64_t cp) const {
    constexpr int64_t kRound = 256;
    const int64_t own = (lengths_.longest_trained + cp - 1) / cp;
    return (own + kRound - 1) / kRound * kRound;
  }

  void add_tokens(int64_t cp, int64_t tokens) {
    const std::string of_tokens = fmt::format("train.max_tokens_per_gpu: {}", tokens);
    const bool is_same_cp = cp == config_.parallel.context_parallel_size;
    PlanChange& change =
        add(is_same_cp ? of_tokens
                       : fmt::format("parallel.context_parallel_size: {} with {}", cp, of_tokens));
    change.request.config.parallel.context_parallel_size = cp;
    change.request.config.train.max_tokens_per_gpu = tokens;
  }

  void add_pair(const PlanChange& state, const PlanChange& tokens) {
    PlanChange both{.text = fmt::format("{}; {}", state.text, tokens.text),
                    .request = tokens.request,
                    .is_pair = true};
    both.request.config.optimizer = state.request.config.optimizer;
    changes_.push_back(std::move(both));
  }

  const PlanRequest& request_;
  const RunConfig& config_;
  const PlannedLengths& lengths_;
  std::vector<PlanChange> changes_;
};

}  // namespace

std::vector<PlanChange> list_changes(const PlanRequest& request, const PlannedLengths& lengths) {
  return Changes(request, lengths).list();
}

std::string choose_keys(const RunConfig& config, const MemoryBudget& budget, int64_t engine_bytes,
                        int64_t missing_bytes) {
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
       fmt::format("lower train.max_tokens_per_gpu and rollout.rollout_max_response_len, or raise "
                   "parallel.context_parallel_size and lower max_tokens_per_gpu by the same "
                   "factor: activations take {}",
                   size_text(budget.activations.least))},
      {state, advise_state(config, state)},
      {budget.cache_is_given ? budget.max_cache_bytes : 0,
       "leave out rollout.kv_cache_gib and rollout.max_total_tokens, or lower them"},
      {engine_bytes,
       "raise rollout.rollout_num_gpus_per_engine and ep_size: an engine's ranks share its "
       "weights"},
      {weights,
       fmt::format("raise parallel.pipeline_model_parallel_size, tensor_model_parallel_size or "
                   "expert_model_parallel_size: weights, gradients and workspace take {}",
                   size_text(weights))}};
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

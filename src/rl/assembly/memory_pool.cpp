#include "rl/assembly/memory_pool.h"

#include <utility>

namespace slimexx::rl {

MemoryNeeds list_needs(const RankInputs& inputs, const PoolUsers& users) {
  MemoryNeeds needs{.config = inputs.config, .trainer = users.trainer};
  needs.longest = users.longest_trained;
  if (users.has_engine())
    needs.engine = rollout::plan_engine_memory(*users.engine->decoder, users.engine->weights,
                                               inputs.device, users.engine_options,
                                               users.num_sampled_tokens, *users.engine_groups);
  if (!users.frozen.empty())
    needs.plan_scoring = [users](int64_t longest, int64_t num_samples) {
      return plan_frozen_scoring(*users.trainer, users.frozen, *users.policy, longest, num_samples);
    };
  return needs;
}

tensor::Tensor make_pool(const RankInputs& inputs, const PoolUsers& users, MemoryPlan plan,
                         SharedMemory& memory) {
  memory.plan = std::move(plan);
  memory.pool = tensor::Buffer(inputs.device, memory.plan->pool_bytes,
                               !users.has_engine() ? "activations"
                               : inputs.trains()   ? "KV cache, activations"
                                                   : "KV cache");
  const tensor::Tensor pool = memory.pool.view(tensor::DType::kU8, {memory.pool.size_bytes()});
  return pool.rows(0, memory.plan->cache_bytes);
}

}  // namespace slimexx::rl

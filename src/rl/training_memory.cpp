// The memory of a training run.
#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/strings.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kLeastLogitsBytes = int64_t{1} << 28;

std::string line(int64_t bytes, const std::string& what) {
  return fmt::format("{:>14}  {}\n", format_bytes(static_cast<double>(bytes)), what);
}

// The same on every rank: the least that any of them has.
int64_t least_of_ranks(dist::Communicator& communicator, int64_t bytes) {
  double negated[1] = {-static_cast<double>(bytes)};
  communicator.all_reduce_max(negated);
  return static_cast<int64_t>(-negated[0]);
}

}  // namespace

// On a GPU the pool is what nothing else takes; the trainer has all of it, the engine its first
// bytes. On the CPU there is none: both take their own memory.
tensor::Tensor TrainingRun::take_pool() {
  if (request_.device.is_cpu()) return {};
  tensor::synchronize(tensor::compute_stream(request_.device));
  const tensor::DeviceMemory now = tensor::device_memory(request_.device);
  MemoryBudget budget{.device_bytes = now.total_bytes,
                      .mem_fraction = config_.rollout.mem_fraction_static,
                      .used_bytes = now.total_bytes - least_of_ranks(communicator_, now.free_bytes),
                      .live = tensor::list_allocations(request_.device)};
  if (wants_engine()) {
    const rollout::EngineMemory engine = rollout::plan_engine_memory(
        *transformer_, policy_weights_, request_.device,
        engine_options(config_.rollout, longest_generated()), text_.tokenizer->vocab_size());
    budget.workspace_bytes = engine.workspace_bytes;
    budget.min_cache_bytes = engine.min_cache_bytes();
    budget.max_cache_bytes = engine.max_cache_bytes();
    budget.cache_is_given = config_.rollout.kv_cache_gib || config_.rollout.max_total_tokens > 0;
  }
  budget.has_unknown_samples = !prompts_ && !source_->longest_sequence();
  const int64_t longest =
      budget.has_unknown_samples ? config_.train.max_tokens_per_gpu : longest_trained();
  const int64_t left = MemoryPlan{.budget = budget}.left_bytes();
  // Fewer logits at once where the configuration leaves it open and there is no room for more.
  for (;;) {
    budget.activations = trainer_->plan_activations(longest, samples_per_microbatch());
    const int64_t limit = trainer_->max_logits_bytes();
    if (budget.activations.least <= left || config_.train.max_logits_gib ||
        limit <= kLeastLogitsBytes)
      break;
    trainer_->limit_logits(limit / 2);
  }
  if (reference_transformer_) {
    const auto plan_scoring = [&](const model::ParameterStore& store) {
      return trainer_->plan_scoring(*reference_transformer_,
                                    model::bind_weights(store, reference_.spec), longest,
                                    samples_per_microbatch());
    };
    const int64_t scoring = reference_is_transient_
                                ? plan_scoring({reference_.spec, gradient_bytes()})
                                : plan_scoring(*reference_.store);
    budget.activations.least = std::max(budget.activations.least, scoring);
    budget.activations.most = std::max(budget.activations.most, scoring);
  }
  memory_plan_ = plan_memory(std::move(budget));
  pool_ = tensor::Buffer(request_.device, memory_plan_->pool_bytes,
                         wants_engine() ? "keys and values, activations" : "activations");
  const tensor::Tensor pool = pool_.view(tensor::DType::kU8, {pool_.size_bytes()});
  trainer_->borrow_memory(pool);
  return pool.rows(0, memory_plan_->cache_bytes);
}

// The memory of the gradients, of which nothing is wanted between two optimizer steps.
tensor::Tensor TrainingRun::gradient_bytes() const { return policy_.store->gradient_memory(); }

// No microbatch has more samples than an optimizer step.
int64_t TrainingRun::samples_per_microbatch() const {
  const int64_t per_step = config_.global_batch_size > 0 ? config_.global_batch_size : INT32_MAX;
  return config_.train.use_dynamic_batch_size ? per_step : config_.train.micro_batch_size;
}

std::string TrainingRun::memory_table() const {
  std::string text;
  if (memory_plan_) {
    text = format_memory(*memory_plan_);
    text += fmt::format("                logits: at most {} at once\n",
                        format_bytes(static_cast<double>(trainer_->max_logits_bytes())));
  } else {
    for (const auto& [what_for, bytes] : tensor::list_allocations(request_.device))
      text += line(bytes, what_for);
    if (prompts_ || source_->longest_sequence())
      text += line(trainer_->plan_activations(longest_trained(), samples_per_microbatch()).most,
                   "activations of the largest microbatch, at most");
  }
  const int64_t owned = trainer_->optimizer().master().num_elements();
  text += line(12 * owned, "host memory while a checkpoint is written: weights and moments in f32");
  return text;
}

}  // namespace slimexx::rl

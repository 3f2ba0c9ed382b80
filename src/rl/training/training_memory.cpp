// The memory of a training run.
#include <fmt/format.h>

#include "rl/training/training_run.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/host.h"

namespace slimexx::rl {
namespace {

std::string line(int64_t bytes, const std::string& what) {
  return fmt::format("{:>14}  {}\n", format_bytes(static_cast<double>(bytes)), what);
}

// The minimum over the ranks of `communicator`.
int64_t least_of_ranks(dist::Collective& communicator, int64_t bytes) {
  double negated[1] = {-static_cast<double>(bytes)};
  dist::all_reduce_max(communicator, negated);
  return static_cast<int64_t>(-negated[0]);
}

// This rank's share of its device. Ranks that are threads share a device, which the driver counts
// as one process: each gets an equal part.
MemoryBudget measure_device(const Session& session) {
  tensor::synchronize(tensor::compute_stream(session.request.device));
  const int64_t sharers = session.world.are_threads() ? session.world.size() : 1;
  if (sharers > 1) session.communicator.barrier();  // all ranks have made their earlier allocations
  const tensor::DeviceMemory now = tensor::device_memory(session.request.device);
  const int64_t used = now.total_bytes - least_of_ranks(session.peers, now.free_bytes);
  MemoryBudget budget{.device_bytes = now.total_bytes / sharers,
                      .mem_fraction = session.config.rollout.mem_fraction_static,
                      .used_bytes = used / sharers,
                      .live = tensor::list_allocations(session.request.device)};
  for (tensor::NamedBytes& live : budget.live) live.bytes /= sharers;
  if (sharers > 1) session.communicator.barrier();  // before any rank allocates more
  return budget;
}

}  // namespace

// On a GPU the pool is all memory that is left. Colocated ranks use all of it for activations while
// training and its start for the KV cache while generating; disaggregated ranks use it for one of
// the two. On the CPU there is no pool: trainer and engine allocate their own memory.
tensor::Tensor take_pool(const Session& session, TrainerSide& trainer_side,
                         const RolloutSide& rollout_side, const dist::Groups& engine_groups,
                         SharedMemory& memory) {
  if (session.request.device.is_cpu()) return {};
  MemoryBudget budget = measure_device(session);
  MemoryNeeds needs{.config = session.config, .trainer = trainer_side.trainer.get()};
  const bool has_engine = rollout_side.model.decoder != nullptr;
  if (has_engine)
    needs.engine =
        rollout::plan_engine_memory(*rollout_side.model.decoder, rollout_side.model.weights,
                                    session.request.device, engine_options(session, rollout_side),
                                    rollout_side.text.tokenizer->vocab_size(), engine_groups);
  if (rollout_side.prompts || rollout_side.source->longest_sequence())
    needs.longest = longest_trained(session.config, rollout_side, trainer_side.policy.spec);
  if (!trainer_side.reference_decoders.empty())
    needs.plan_scoring = [&](int64_t longest, int64_t num_samples) {
      const auto plan_scoring = [&](const model::ParameterStore& store) {
        return trainer_side.trainer->plan_scoring(borrow(trainer_side.reference_decoders), store,
                                                  longest, num_samples);
      };
      return trainer_side.reference_is_transient
                 ? plan_scoring({trainer_side.reference.held_parameters(),
                                 trainer_side.policy.store->gradient_memory()})
                 : plan_scoring(*trainer_side.reference.store);
    };
  budget = add_needs(std::move(budget), needs);
  memory.plan = plan_memory(std::move(budget));
  memory.pool = tensor::Buffer(session.request.device, memory.plan->pool_bytes,
                               !has_engine        ? "activations"
                               : session.trains() ? "keys and values, activations"
                                                  : "keys and values");
  const tensor::Tensor pool = memory.pool.view(tensor::DType::kU8, {memory.pool.size_bytes()});
  if (session.trains()) trainer_side.trainer->borrow_memory(pool);
  return pool.rows(0, memory.plan->cache_bytes);
}

std::string memory_table(const TrainingRun& run) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, world, engine_grid] =
      run;
  std::string text;
  if (memory.plan) {
    text = format_memory(*memory.plan);
    if (session.trains())
      text +=
          fmt::format("                logits: at most {} at once\n",
                      format_bytes(static_cast<double>(trainer_side.trainer->max_logits_bytes())));
  } else {
    for (const auto& [what_for, bytes] : tensor::list_allocations(session.request.device))
      text += line(bytes, what_for);
    if (!session.trains()) return text;
    if (rollout_side.prompts || rollout_side.source->longest_sequence())
      text += line(trainer_side.trainer
                       ->plan_activations(
                           longest_trained(session.config, rollout_side, trainer_side.policy.spec),
                           samples_per_microbatch(session.config))
                       .most,
                   "activations of the largest microbatch, at most");
  }
  if (!session.trains()) return text;
  if (const int64_t bytes = trainer_side.trainer->optimizer().host_bytes(); bytes > 0)
    text += line(bytes, "host memory: optimizer state");
  if (const int64_t bytes = trainer_side.reference_copy.size_bytes(); bytes > 0)
    text += line(bytes, "host memory: reference");
  if (const int64_t bytes =
          snapshot_bytes(trainer_side.trainer->optimizer(), trainer_side.reference_is_saved);
      bytes > 0)
    text += line(bytes, "host memory while a checkpoint is written: a copy of the state");
  return text;
}

}  // namespace slimexx::rl

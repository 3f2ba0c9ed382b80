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
// as one process, so each gets an equal part.
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

tensor::Tensor take_pool(const Session& session, TrainerSide& trainer_side,
                         const RolloutSide& rollout_side, const dist::Groups& engine_groups,
                         SharedMemory& memory) {
  if (session.request.device.is_cpu()) return {};
  PoolUsers users{.trainer = trainer_side.trainer.get(),
                  .frozen = trainer_side.frozen,
                  .policy = trainer_side.policy.store.get(),
                  .engine = &rollout_side.model,
                  .engine_groups = &engine_groups};
  if (users.has_engine()) {
    users.engine_options = engine_options(session, rollout_side);
    users.num_sampled_tokens = rollout_side.text.tokenizer->vocab_size();
  }
  if (rollout_side.prompts || rollout_side.source->longest_sequence())
    users.longest_trained = longest_trained(session.config, rollout_side, trainer_side.policy.spec);
  const RankInputs inputs = session.rank_inputs();
  MemoryBudget budget = add_needs(measure_device(session), list_needs(inputs, users));
  const tensor::Tensor cache = make_pool(inputs, users, plan_memory(std::move(budget)), memory);
  if (session.trains())
    trainer_side.trainer->memory().borrow(
        memory.pool.view(tensor::DType::kU8, {memory.pool.size_bytes()}));
  return cache;
}

std::string memory_table(const TrainingRun& run) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, world, engine_grid] =
      run;
  std::string text;
  if (memory.plan) {
    text = format_memory(*memory.plan);
    if (session.trains())
      text += fmt::format(
          "                logits: at most {}\n",
          format_bytes(static_cast<double>(trainer_side.trainer->plans().max_logits_bytes())));
  } else {
    for (const auto& [what_for, bytes] : tensor::list_allocations(session.request.device))
      text += line(bytes, what_for);
    if (!session.trains()) return text;
    if (rollout_side.prompts || rollout_side.source->longest_sequence())
      text += line(trainer_side.trainer->plans()
                       .plan_activations(
                           longest_trained(session.config, rollout_side, trainer_side.policy.spec),
                           samples_per_microbatch(session.config))
                       .most,
                   "activations of the largest microbatch, at most");
  }
  if (!session.trains()) return text;
  if (const int64_t bytes = trainer_side.trainer->optimizer().host_bytes(); bytes > 0)
    text += line(bytes, "host memory: optimizer state");
  bool saves_frozen = false;
  for (const FrozenModel& frozen : trainer_side.frozen) {
    saves_frozen |= frozen.is_saved;
    if (const int64_t bytes = frozen.copy.size_bytes(); bytes > 0)
      text += line(bytes, "host memory: " + frozen.options.name);
  }
  if (const int64_t bytes = snapshot_bytes(trainer_side.trainer->optimizer(), saves_frozen);
      bytes > 0)
    text += line(bytes, "host memory while writing a checkpoint: a copy of the state");
  return text;
}

}  // namespace slimexx::rl

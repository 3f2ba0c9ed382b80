#include "rl/generation/session.h"

#include <fmt/format.h>

#include "rl/checkpoint/run_checkpoint.h"
#include "rl/checkpoint/stop_signal.h"
#include "slimexx/base/file.h"
#include "slimexx/dist/world.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace {

// The command that started the ranks, to put before the program's own command.
std::string launcher(const dist::World& world) {
  const int num_ranks = world.size();
  return num_ranks > 1 && !world.are_threads() ? fmt::format("mpirun -np {} ", num_ranks) : "";
}

std::unique_ptr<dist::RankWatch> watch_ranks(const RunConfig& config, dist::Collective& ranks) {
  const ParallelOptions& o = config.parallel;
  return std::make_unique<dist::RankWatch>(
      ranks,
      dist::RankWatchOptions{.warn_s = o.rank_silence_warn_s,
                             .limit_s = o.rank_silence_limit_s,
                             .host_limit_s = o.host_silence_limit_s,
                             .hang_limit_s = o.hang_limit_s,
                             .wait_warn_s = o.rank_wait_warn_s,
                             .wait_limit_s = o.rank_wait_limit_s},
      [run_dir = config.observe.run_dir](const dist::FirstCause& cause) {
        return observe::write_first_failure(
            run_dir, -1, cause.what,
            {.rank = cause.rank, .host = cause.host, .phase = cause.phase, .call = cause.call});
      },
      launcher_ends_ranks);
}

}  // namespace

Session::Session(TrainRequest request_in, dist::World& world_in)
    : request(std::move(request_in)),
      config(request.config),
      world(world_in),
      communicator(world_in.ranks()),
      roles(make_rank_roles(config.parallel, world.size())),
      part_of_world(roles.are_apart ? communicator.split(trains() ? 0 : 1, world.rank()) : nullptr),
      peers(part_of_world ? *part_of_world : communicator),
      model_ranks(make_model_ranks(world_in, grid_sizes(config.parallel),
                                   pipeline_split(config.parallel), roles.num_trainers)),
      engine_shape(make_engine_shape(config.rollout, grid_sizes(config.parallel),
                                     roles.num_generators, nullptr)),
      checkpoint_root(rl::checkpoint_root(config, config.observe.run_dir)) {
  if (config.observe.trace) observe::enable_trace(world.rank());
  if (!config.checkpoint.save_hf.empty())
    check_export_target(config.checkpoint.save_hf, config.model.hf_checkpoint);
  check_writable(checkpoint_root);
  if (request.dry_run) return;
  if (is_root()) observe::forget_failure(config.observe.run_dir);
  watch = watch_ranks(config, communicator);
}

std::string Session::path(const std::string& name) const {
  return join_path(config.observe.run_dir, name);
}

std::string Session::start_command() const { return launcher(world) + request.start_command; }

std::string Session::resume_command() const { return launcher(world) + request.resume_command; }

}  // namespace slimexx::rl

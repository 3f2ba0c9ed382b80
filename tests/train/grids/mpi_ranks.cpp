// Tests pipeline stages over MPI ranks, where a send blocks until its receive.
#include <fmt/format.h>

#include <cstdio>

#include "slimexx/dist/world.h"
#include "train/grids/grid_agreement.h"

namespace slimexx::train {
namespace {

GridResult run_here(const GridRun& run, std::span<const Sample> samples, dist::Collective& host) {
  GridResult result;
  std::mutex mutex;
  run_grid_rank(run, samples, full_loss(), host, mutex, result);
  return result;
}

// Compares the tensors that this rank holds; returns "" if they agree.
std::string compare(const GridResult& own, const GridResult& one) {
  for (const auto& [name, values] : own.gradients)
    if (relative_difference(values, one.gradients.at(name)) > 1e-5) return "gradient of " + name;
  for (const auto& [name, values] : own.weights)
    if (relative_difference(values, one.weights.at(name)) > 1e-4) return name;
  for (size_t i = 0; i < own.scores.size(); ++i)  // scores are on the first rank
    if (own.scores[i].log_probs != one.scores[i].log_probs) return fmt::format("sample {}", i);
  return "";
}

std::string check_pipelines(dist::Collective& host) {
  for (const std::string model : {"oracle/qwen3", "models/qwen3_tied_mqa"}) {
    const bool is_tied = model.ends_with("mqa");
    const std::vector<Sample> samples = mixed_samples(7, 31, is_tied ? 96 : 320);
    GridRun run{.folder = test_data_path("golden/" + model), .options = packed(48), .num_steps = 2};
    dist::Collective alone;
    const GridResult one = run_here(run, samples, alone);
    run.world_size = host.size();
    run.sizes.pp = is_tied ? 2 : host.size();
    std::string fault = compare(run_here(run, samples, host), one);
    if (fault.empty() && host.size() == 2 && !is_tied) {
      run.split.layers_per_virtual_stage = 1;
      fault = compare(run_here(run, samples, host), one);
    }
    if (!fault.empty()) return fmt::format("rank {}: {} {} differs", host.rank(), model, fault);
  }
  return "";
}

}  // namespace
}  // namespace slimexx::train

int main() {
  slimexx::dist::World world;
  const std::string fault = slimexx::train::check_pipelines(world.ranks());
  if (!fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    world.abort(1);
    return 1;
  }
  if (world.rank() == 0) std::printf("%d ranks: ok\n", world.size());
  return 0;
}

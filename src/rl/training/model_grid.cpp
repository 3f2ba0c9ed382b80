#include "slimexx/rl/model_grid.h"

#include <fmt/format.h>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

bool has_experts(const model::ModelSpec& spec) { return model::find_router(spec) != nullptr; }

// Throws Error(kUsage) unless the model can be split by the sizes.
void check_sizes(const model::ModelSpec& spec, const dist::GridSizes& sizes) {
  if (sizes.ep > 1 && !has_experts(spec))
    throw Error(ErrorCode::kUsage, fmt::format("is {}, but the model has no experts", sizes.ep),
                "leave it out", "parallel.expert_model_parallel_size");
  model::narrow(spec, sizes);
}

}  // namespace

dist::GridRule rule_of(const model::ModelSpec& spec, const model::PipelineSplit& split) {
  return [&spec, split](const dist::GridSizes& sizes) {
    try {
      check_sizes(spec, sizes);
    } catch (const Error&) {
      return false;
    }
    if (sizes.pp == split.num_ranks) return true;  // reported as a fault of its own
    model::PipelineSplit other = split;
    other.num_ranks = sizes.pp;
    return model::can_split(spec, other) || model::can_split(spec, {.num_ranks = sizes.pp});
  };
}

void check_model_grid(const model::ModelSpec& spec, const dist::GridShape& grid,
                      const model::PipelineSplit& split) {
  try {
    check_sizes(spec, grid.sizes());
  } catch (const Error& error) {
    // The hint of check_sizes ignores the number of ranks: the size in it may not divide that
    // number.
    const dist::GridAdvice advice =
        dist::advise_grid(grid.world_size(), grid.sizes(), rule_of(spec, split));
    if (advice.hint.empty()) throw;
    throw Error(error.code(), error.message(), advice.hint, advice.key);
  }
  model::list_stages(spec, split);
}

}  // namespace slimexx::rl

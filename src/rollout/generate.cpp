#include "slimexx/rollout/generate.h"

#include <memory>
#include <utility>

namespace slimexx::rollout {
namespace {

void submit_group(Engine& engine, const GenerationJob& job, int64_t index) {
  const GroupRequest& group = job.groups[static_cast<size_t>(index)];
  const auto prompt =
      std::make_shared<const std::vector<TokenId>>(group.prompt.begin(), group.prompt.end());
  for (int64_t sample = 0; sample < job.n_samples_per_prompt; ++sample) {
    engine.submit({.id = index * job.n_samples_per_prompt + sample,
                   .prompt = prompt,
                   .sampling = job.sampling,
                   .name = {.seed = job.seed,
                            .group = static_cast<uint64_t>(group.number),
                            .sample = static_cast<uint32_t>(sample)}});
  }
}

}  // namespace

void generate(Engine& engine, const GenerationJob& job, WorkSource& source,
              const std::function<void(Completion)>& take_completion) {
  bool has_groups = true, is_stopped = false;
  while (true) {
    if (!is_stopped && source.is_stopped()) {
      engine.abort_all();
      is_stopped = true;
      has_groups = false;
    }
    while (has_groups && engine.has_room()) {
      const std::optional<int64_t> group = source.draw_group();
      has_groups = group.has_value();
      if (group) submit_group(engine, job, *group);
      // One group per step: otherwise the first of several engines in lock step would take the most
      // work.
      if (engine.runs_in_lock_step()) break;
    }
    if (!source.goes_on(has_groups || engine.has_work())) return;
    for (Completion& completion : engine.step())
      if (!is_stopped) take_completion(std::move(completion));
  }
}

}  // namespace slimexx::rollout

// The generation loop of training, evaluation and `slimexx generate`: an engine takes groups of
// requests from a source until the source is empty.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

// One prompt, to be answered n_samples_per_prompt times.
struct GroupRequest {
  std::span<const TokenId> prompt;
  int64_t number = 0;  // counted over the whole run; see RandomName
};

struct GenerationJob {
  std::span<const GroupRequest> groups;
  int64_t n_samples_per_prompt = 1;
  SamplingParams sampling;
  uint64_t seed = 0;
};

// Supplies an engine with work and stops it. Engines that get the same calls do the same, so ranks
// that share an engine must get the same answers: see rl::EngineGroup.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  virtual bool is_stopped() = 0;  // asked before every step; once true, stays true
  // Asked before every step: whether to step again. `has_more`: this engine has work left. Engines
  // in lock step go on until none of their ranks has work.
  virtual bool goes_on(bool has_more) { return has_more; }
  // Index of the group that this engine takes next; nullopt: no groups are left.
  virtual std::optional<int64_t> draw_group() = 0;
};

// Gives each completion to `take_completion`; its id is (group index) * n_samples_per_prompt +
// (sample index). Requests in flight when the source stops are dropped.
void generate(Engine& engine, const GenerationJob& job, WorkSource& source,
              const std::function<void(Completion)>& take_completion);

}  // namespace slimexx::rollout

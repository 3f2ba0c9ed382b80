// The generation loop of training, evaluation and `slimexx generate`: an engine takes groups of
// requests from a source until the source has no more.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

// The responses to one prompt.
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

// Where an engine's work comes from and what stops it. Engines that get the same calls do the same,
// so ranks that share an engine must hear the same answers: see rl::EngineGroup.
class WorkSource {
 public:
  virtual ~WorkSource() = default;
  virtual bool is_stopped() = 0;  // asked before every step; once true, always
  // Asked before every step with whether this engine has anything left: whether to step, which an
  // engine in lock step does until none of its ranks has.
  virtual bool goes_on(bool has_more) { return has_more; }
  // Index of the group that this engine takes next; none: there are no more.
  virtual std::optional<int64_t> draw_group() = 0;
};

// Gives each completion to `take_completion`; its id is the group's index * n_samples_per_prompt +
// its sample. What is in flight when the source stops is dropped.
void generate(Engine& engine, const GenerationJob& job, WorkSource& source,
              const std::function<void(Completion)>& take_completion);

}  // namespace slimexx::rollout

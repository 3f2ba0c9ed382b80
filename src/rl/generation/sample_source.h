// The sources of a training run's samples: generated from prompts, read from a dump, or supervised
// examples. The loop treats all sources alike.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "rl/generation/dynamic_sampling.h"
#include "slimexx/base/json.h"
#include "slimexx/data/sft.h"
#include "slimexx/rl/generation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // The samples of rollout `rollout`, the same on every rank. Groups of prompts and examples are
  // numbered over the whole run, by the rows drawn before. Throws Error(kInterrupted) on all ranks
  // if a signal to stop arrives during generation. Collective.
  virtual DrawnSamples next(int64_t rollout, int64_t weight_version) = 0;
  virtual Json state() const = 0;  // for checkpoints
  virtual void restore(const Json& state) = 0;
  // Rollouts of the whole run, given that `num_done` are done: from the configuration and the rows
  // that are left.
  virtual int64_t num_rollouts(int64_t num_done) const = 0;
  // Tokens of the longest sample that can come; nothing if unknown.
  virtual std::optional<int64_t> longest_sequence() const { return std::nullopt; }
  virtual bool is_generated()
      const = 0;  // by this program's engine, so log-probs must match exactly
};

std::unique_ptr<SampleSource> make_generated_source(const RunConfig& config,
                                                    std::shared_ptr<const data::PromptSet> prompts,
                                                    Generator& generator, reward::Grader& grader,
                                                    const std::vector<int32_t>& stop_token_ids);
std::unique_ptr<SampleSource> make_dump_source(const RunConfig& config);
// Throws Error(kInput) naming the row that has nothing to learn, or more tokens than positions.
std::unique_ptr<SampleSource> make_sft_source(const RunConfig& config, data::SftSet set,
                                              int64_t max_positions);

// Examples of supervised fine-tuning. A response ends with the first of `stop_tokens`, as in
// generation.
data::SftSet load_examples(const RunConfig& config, const TextSide& text,
                           const std::vector<int32_t>& stop_tokens);
data::PromptOptions prompt_options(const RunConfig& config);
// Options for one rank's Engine: attention groups of an engine share its batch limits.
rollout::EngineOptions engine_options(const RolloutOptions& options, int64_t longest_sequence);

}  // namespace slimexx::rl

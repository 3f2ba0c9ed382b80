// From prompts to graded samples, over all ranks: engines draw prompts from one shared queue, one
// rank of each grades what it made, and all ranks get all samples in the prompts' order. What a
// sample holds does not depend on who made it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "slimexx/data/prompts.h"
#include "slimexx/dist/collective.h"
#include "slimexx/reward/rewards.h"
#include "slimexx/rollout/generate.h"
#include "slimexx/sample/sample.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::rl {

using sample::Sample;

// A prompt, and the number that its samples' group has in the run.
struct PromptGroup {
  const data::Prompt* prompt = nullptr;
  int64_t number = 0;
};

struct GenerationRequest {
  std::span<const PromptGroup> groups;  // by ascending number
  int64_t n_samples_per_prompt = 1;
  rollout::SamplingParams sampling;
  uint64_t seed = 0;    // names the random numbers together with group, sample and position
  int64_t rollout = 0;  // what the samples say of themselves; names nothing
  int64_t weight_version = 0;
  std::string label;                    // of the progress bar
  bool stop_on_grader_failure = false;  // reward.on_failure: stop
  bool may_lack_grades = false;         // no sample may have a grade: the caller drops such groups
  // Set on all ranks or none. Asked between steps; where one rank says yes, generate() gives up
  // soon on all of them.
  std::function<bool()> should_stop = {};
};

// Gets a sample that this rank's engine made, and how many all ranks have finished so far.
using TakeCompletion = std::function<void(rollout::Completion, int64_t num_finished)>;

// Runs `job` over all ranks: engines draw groups from one shared queue; `take_completion` is called
// on the first of the tensor-parallel ranks that made a sample. `ranks` are the engine's groups, on
// host memory. Throws Error(kInterrupted), on all ranks, soon after `should_stop`, set on all ranks
// or none, says so on one; any other Error of a rank as agreed by all. Collective.
void generate_on_ranks(rollout::Engine& engine, const dist::Groups& ranks,
                       const rollout::GenerationJob& job, dist::Collective& world,
                       const std::function<bool()>& should_stop,
                       const TakeCompletion& take_completion);

// The same on a rank without an engine: waits for those that have one. Collective.
void wait_for_generation(int64_t num_groups, dist::Collective& world,
                         const std::function<bool()>& should_stop);

class Generator {
 public:
  // All are borrowed; the tokenizer may be null (no response text, rewards see an empty one).
  // `ranks` as generate_on_ranks. `progress_rank` has an engine and shows how far it is.
  Generator(rollout::Engine& engine, const dist::Groups& ranks, const text::Tokenizer* tokenizer,
            dist::Collective& communicator, int progress_rank = 0);
  explicit Generator(dist::Collective& communicator);  // of a rank without an engine
  // Samples in the groups' order. Samples whose grader failed are masked (see
  // mask_failed_samples). Throws Error(kInterrupted), on all ranks, if
  // should_stop said so on one. Collective.
  std::vector<Sample> generate(const GenerationRequest& request, reward::Grader& grader);

 private:
  std::vector<Sample> run_engine(const GenerationRequest& request);
  Sample make_sample(const GenerationRequest& request, rollout::Completion completion) const;

  rollout::Engine* engine_ = nullptr;  // null: this rank gets the samples of the others
  const dist::Groups* ranks_ = nullptr;
  const text::Tokenizer* tokenizer_;
  dist::Collective& communicator_;
  int progress_rank_ = 0;
};

// Fills what the grader says of the samples, whose groups are among `groups`.
void grade_samples(std::span<Sample> samples, std::span<const PromptGroup> groups, uint64_t seed,
                   reward::Grader& grader);

// Sets the loss mask of the samples whose grader failed to 0 and says how many there are and why;
// empty if there are none. Throws Error(kRun) if there is one and `request` stops on failures, or
// if there is nothing else and it may not lack grades.
std::string mask_failed_samples(std::span<Sample> samples, const GenerationRequest& request);

}  // namespace slimexx::rl

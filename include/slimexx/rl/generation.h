// From prompts to graded samples, over all ranks: engines draw prompts from one shared queue, one
// rank of each engine grades its samples, and all ranks receive all samples in the order of the
// prompts. The content of a sample does not depend on the engine that generated it.
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

// A prompt and the number of its group in the run.
struct PromptGroup {
  const data::Prompt* prompt = nullptr;
  int64_t number = 0;
};

struct GenerationRequest {
  std::span<const PromptGroup> groups;  // by ascending number
  int64_t n_samples_per_prompt = 1;
  rollout::SamplingParams sampling;
  uint64_t seed = 0;    // with group, sample and position it determines the random numbers
  int64_t rollout = 0;  // recorded in the samples; does not affect the random numbers
  int64_t weight_version = 0;
  std::string label;                    // label of the progress bar
  bool stop_on_grader_failure = false;  // reward.on_failure: stop
  bool may_lack_grades =
      false;  // if true, all samples may lack a grade: the caller drops such groups
  // Set on all ranks or on none. Asked between steps; if it returns true on one rank, generate()
  // soon throws Error(kInterrupted) on all ranks.
  std::function<bool()> should_stop = {};
};

// Receives a sample that this rank's engine made, and the number that all ranks have finished so
// far.
using TakeCompletion = std::function<void(rollout::Completion, int64_t num_finished)>;

// Runs `job` over all ranks: engines draw groups from one shared queue; `take_completion` is called
// on the first of the tensor-parallel ranks that made a sample. `ranks` are the engine's groups, on
// host memory. `should_stop` is set on all ranks or on none; soon after it returns true on one
// rank, all ranks throw Error(kInterrupted). Any other Error of a rank is thrown on all ranks.
// Collective.
void generate_on_ranks(rollout::Engine& engine, const dist::Groups& ranks,
                       const rollout::GenerationJob& job, dist::Collective& world,
                       const std::function<bool()>& should_stop,
                       const TakeCompletion& take_completion);

// The counterpart for a rank without an engine: waits for the ranks that have one. Collective.
void wait_for_generation(int64_t num_groups, dist::Collective& world,
                         const std::function<bool()>& should_stop);

class Generator {
 public:
  // All are borrowed; the tokenizer may be null (no response text, rewards see an empty one).
  // `ranks` as in generate_on_ranks. `progress_rank` has an engine and shows the progress bar.
  Generator(rollout::Engine& engine, const dist::Groups& ranks, const text::Tokenizer* tokenizer,
            dist::Collective& communicator, int progress_rank = 0);
  explicit Generator(dist::Collective& communicator);  // for a rank without an engine
  // Samples in the order of the groups. Samples whose grader failed are masked (see
  // mask_failed_samples). Throws Error(kInterrupted) on all ranks if should_stop returned true on
  // one rank. Collective.
  std::vector<Sample> generate(const GenerationRequest& request, reward::Grader& grader);

 private:
  std::vector<Sample> run_engine(const GenerationRequest& request);
  Sample make_sample(const GenerationRequest& request, rollout::Completion completion) const;

  rollout::Engine* engine_ = nullptr;  // null: this rank receives the samples of the others
  const dist::Groups* ranks_ = nullptr;
  const text::Tokenizer* tokenizer_;
  dist::Collective& communicator_;
  int progress_rank_ = 0;
};

// Writes the grader's results into the samples, whose groups are among `groups`.
void grade_samples(std::span<Sample> samples, std::span<const PromptGroup> groups, uint64_t seed,
                   reward::Grader& grader);

// Sets the loss mask of the samples whose grader failed to 0. Returns a message with their number
// and the reason; empty if there are none. Throws Error(kRun) if a grader failed and `request`
// stops on failures, or if all have failed and `request` does not allow that.
std::string mask_failed_samples(std::span<Sample> samples, const GenerationRequest& request);

}  // namespace slimexx::rl

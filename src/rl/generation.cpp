#include "slimexx/rl/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {

// What the ranks tell each other of a request that may be stopped: one number, to which a rank that
// is done adds 1 and one that is asked to stop kStop.
class Generator::StopWatch {
 public:
  StopWatch(const GenerationRequest& request, dist::Communicator& communicator)
      : should_stop_(request.should_stop),
        communicator_(communicator),
        num_ranks_(communicator.size()),
        state_(should_stop_ ? communicator.make_counter() : nullptr) {}

  bool is_stopped() {
    const auto now = std::chrono::steady_clock::now();
    if (!state_ || is_stopped_ || now < next_look_) return is_stopped_;
    next_look_ = now + kInterval;
    look(0);
    return is_stopped_;
  }

  // Waits until every rank is done or stops, and says whether one stopped. The signal may reach a
  // rank that has nothing left to do and must tell the others; or come when some have left the loop
  // already, so they agree at the end.
  bool ends_stopped() {
    if (!state_) return false;
    for (int64_t state = look(1); !is_stopped_ && state < num_ranks_; state = look(0))
      std::this_thread::sleep_for(kInterval);
    double stopped[1] = {is_stopped_ ? 1.0 : 0.0};
    communicator_.all_reduce_max(stopped);
    return stopped[0] != 0;
  }

 private:
  static constexpr int64_t kStop = int64_t{1} << 32;
  static constexpr auto kInterval = std::chrono::milliseconds(20);

  int64_t look(int64_t done) {
    const int64_t added = done + (should_stop_() ? kStop : 0);
    const int64_t state = state_->fetch_add(added) + added;
    is_stopped_ = state >= kStop;
    return state;
  }

  const std::function<bool()>& should_stop_;
  dist::Communicator& communicator_;
  const int64_t num_ranks_;
  std::unique_ptr<dist::SharedCounter> state_;
  std::chrono::steady_clock::time_point next_look_;
  bool is_stopped_ = false;
};

Generator::Generator(rollout::Engine& engine, const text::Tokenizer* tokenizer,
                     dist::Communicator& communicator)
    : engine_(engine), tokenizer_(tokenizer), communicator_(communicator) {}

void Generator::submit_group(const GenerationRequest& request, int64_t index) {
  const PromptGroup& group = request.groups[static_cast<size_t>(index)];
  const auto tokens = std::make_shared<const std::vector<int32_t>>(group.prompt->tokens);
  for (int64_t s = 0; s < request.n_samples_per_prompt; ++s) {
    engine_.submit({.id = index * request.n_samples_per_prompt + s,
                    .prompt = tokens,
                    .sampling = request.sampling,
                    .name = {.seed = request.seed,
                             .group = static_cast<uint64_t>(group.number),
                             .sample = static_cast<uint32_t>(s)}});
  }
}

Sample Generator::make_sample(const GenerationRequest& request,
                              rollout::Generation generation) const {
  Sample s;
  const auto index = static_cast<size_t>(generation.id / request.n_samples_per_prompt);
  const data::Prompt& prompt = *request.groups[index].prompt;
  s.group = request.groups[index].number;
  s.sample = generation.id % request.n_samples_per_prompt;
  s.rollout = request.rollout;
  s.response_length = static_cast<int64_t>(generation.tokens.size());
  if (tokenizer_ != nullptr) s.response_text = tokenizer_->decode(generation.tokens, true);
  s.tokens = prompt.tokens;
  s.tokens.insert(s.tokens.end(), generation.tokens.begin(), generation.tokens.end());
  s.loss_mask.assign(generation.tokens.size(), 1);
  s.rollout_log_probs = std::move(generation.log_probs);
  switch (generation.finish) {
    case rollout::FinishReason::kStop:
      s.status = sample::SampleStatus::kCompleted;
      break;
    case rollout::FinishReason::kLength:
      s.status = sample::SampleStatus::kTruncated;
      break;
    case rollout::FinishReason::kAbort:
      s.status = sample::SampleStatus::kAborted;
      break;
  }
  s.weight_versions = {{s.response_length, request.weight_version}};
  s.cached_tokens = generation.cached_tokens;
  s.prompt_text = prompt.text;
  s.label = prompt.label;
  if (prompt.metadata)
    s.metadata = prompt.metadata->dump(-1, ' ', false, Json::error_handler_t::replace);
  return s;
}

std::vector<Sample> Generator::run_engine(const GenerationRequest& request,
                                          dist::SharedCounter& queue, StopWatch& watch) {
  const auto num_groups = static_cast<int64_t>(request.groups.size());
  observe::ProgressBar bar(request.label, num_groups * request.n_samples_per_prompt,
                           communicator_.rank() == 0);
  std::vector<Sample> samples;
  bool queue_is_empty = false;
  while (!queue_is_empty || engine_.has_work()) {
    if (watch.is_stopped()) {
      engine_.abort_all();
      while (engine_.has_work()) engine_.step();
      break;
    }
    while (!queue_is_empty && engine_.has_room()) {
      const int64_t index = queue.fetch_add(1);
      queue_is_empty = index >= num_groups;
      if (!queue_is_empty) submit_group(request, index);
    }
    if (!engine_.has_work()) continue;
    for (auto& generation : engine_.step()) {
      samples.push_back(make_sample(request, std::move(generation)));
      bar.advance();
    }
  }
  return samples;
}

std::vector<Sample> Generator::generate(const GenerationRequest& request, reward::Grader& grader) {
  const auto queue = communicator_.make_counter();
  StopWatch watch(request, communicator_);
  std::vector<Sample> mine;
  std::optional<Error> failure;
  {
    observe::Span span("generate");
    try {
      mine = run_engine(request, *queue, watch);
    } catch (const Error& error) {
      failure = error;
      queue->fetch_add(static_cast<int64_t>(request.groups.size()));  // the others need not go on
    }
    if (watch.ends_stopped())
      throw Error(ErrorCode::kInterrupted, "generation was stopped by a signal");
  }
  dist::run_agreed(communicator_, [&] {
    if (failure) throw *failure;
    observe::Span span("reward");
    std::sort(mine.begin(), mine.end(), [](const Sample& a, const Sample& b) {
      return std::pair(a.group, a.sample) < std::pair(b.group, b.sample);
    });
    grade_samples(mine, request.groups, request.seed, grader);
  });
  std::vector<Sample> all;
  for (const auto& bytes : communicator_.all_gather(pack_samples(mine))) {
    for (auto& sample : sample::unpack_samples(bytes)) all.push_back(std::move(sample));
  }
  std::sort(all.begin(), all.end(), [](const Sample& a, const Sample& b) {
    return std::pair(a.group, a.sample) < std::pair(b.group, b.sample);
  });
  std::string left_out;
  try {
    left_out = mask_failed_samples(all, request.stop_on_grader_failure, request.label);
  } catch (const Error& error) {
    throw dist::AgreedError(error);  // all ranks have the same samples
  }
  if (!left_out.empty() && communicator_.rank() == 0) log_warn("{}; left out", left_out);
  return all;
}

void grade_samples(std::span<Sample> samples, std::span<const PromptGroup> groups, uint64_t seed,
                   reward::Grader& grader) {
  std::map<int64_t, const data::Prompt*> prompts;
  for (const PromptGroup& group : groups) prompts.emplace(group.number, group.prompt);
  std::vector<reward::RewardInput> inputs;
  for (const auto& s : samples) {
    const data::Prompt& prompt = *prompts.at(s.group);
    inputs.push_back(
        {.prompt = s.prompt_text,
         .response = s.response_text,
         .label = s.label,
         .metadata = prompt.metadata,
         .seed = seed ^ (static_cast<uint64_t>(s.group) << 20) ^ static_cast<uint64_t>(s.sample)});
  }
  const auto grades = grader.grade(inputs);
  for (size_t i = 0; i < samples.size(); ++i) {
    samples[i].reward = grades[i].reward;
    samples[i].reason = grades[i].reason;
    samples[i].prediction = grades[i].prediction;
    samples[i].grader_failed = grades[i].failed;
    if (!grades[i].failed) samples[i].values = grades[i].values;
  }
}

std::string mask_failed_samples(std::span<Sample> samples, bool stop, const std::string& label) {
  const Sample* first = nullptr;
  size_t num_failed = 0;
  for (Sample& s : samples) {
    if (!s.grader_failed) continue;
    if (first == nullptr) first = &s;
    s.loss_mask.assign(s.loss_mask.size(), 0);
    ++num_failed;
  }
  if (first == nullptr) return "";
  std::string what =
      fmt::format("{}: the grader failed on {} of {} samples; group {} sample {}: {}", label,
                  num_failed, samples.size(), first->group, first->sample, first->reason);
  if (num_failed == samples.size())
    throw Error(ErrorCode::kRun, what, "mend the labels, reward.rm_type or the service");
  if (stop) {
    throw Error(ErrorCode::kRun, what,
                "mend the labels or the service; reward.on_failure: mask leaves such samples out");
  }
  return what;
}

}  // namespace slimexx::rl

#include "slimexx/rl/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "rl/generation/work_source.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {

namespace {

bool comes_before(const Sample& a, const Sample& b) {
  return std::pair(a.group, a.sample) < std::pair(b.group, b.sample);
}

// Called after the last group of this rank; `failure`: this rank's error, if any.
void end_together(SharedQueue& queue, dist::Collective& world,
                  const std::optional<Error>& failure) {
  if (queue.ends_stopped())
    throw Error(ErrorCode::kInterrupted, "generation was stopped by a signal");
  dist::run_agreed(world, [&] {
    if (failure) throw *failure;
  });
}

}  // namespace

void generate_on_ranks(rollout::Engine& engine, const dist::Groups& ranks,
                       const rollout::GenerationJob& job, dist::Collective& world,
                       const std::function<bool()>& should_stop,
                       const TakeCompletion& take_completion) {
  observe::Span span("generate");
  SharedQueue queue(world, std::ssize(job.groups), should_stop);
  EngineGroup group(ranks.tp, queue, engine.runs_in_lock_step() ? &ranks.ep : nullptr);
  std::optional<Error> failure;
  try {
    group.run([&] {
      rollout::generate(engine, job, group, [&](rollout::Completion completion) {
        if (ranks.tp.rank() == 0) take_completion(std::move(completion), queue.finish_sample());
      });
    });
  } catch (const Error& error) {
    if (!group.has_told()) throw;  // the other ranks of the engine wait for this one
    failure = error;
    queue.empty();  // so that the other ranks stop too
  }
  end_together(queue, world, failure);
}

void wait_for_generation(int64_t num_groups, dist::Collective& world,
                         const std::function<bool()>& should_stop) {
  observe::Span span("generate");
  SharedQueue queue(world, num_groups, should_stop);
  end_together(queue, world, std::nullopt);
}

Generator::Generator(rollout::Engine& engine, const dist::Groups& ranks,
                     const text::Tokenizer* tokenizer, dist::Collective& communicator,
                     int progress_rank)
    : engine_(&engine),
      ranks_(&ranks),
      tokenizer_(tokenizer),
      communicator_(communicator),
      progress_rank_(progress_rank) {}

Generator::Generator(dist::Collective& communicator)
    : tokenizer_(nullptr), communicator_(communicator) {}

Sample Generator::make_sample(const GenerationRequest& request,
                              rollout::Completion completion) const {
  Sample s;
  const auto index = static_cast<size_t>(completion.id / request.n_samples_per_prompt);
  const data::Prompt& prompt = *request.groups[index].prompt;
  s.group = request.groups[index].number;
  s.sample = completion.id % request.n_samples_per_prompt;
  s.rollout = request.rollout;
  s.response_length = static_cast<int64_t>(completion.tokens.size());
  if (tokenizer_ != nullptr) s.response_text = tokenizer_->decode(completion.tokens, true);
  s.tokens = prompt.tokens.unpack();
  s.tokens.insert(s.tokens.end(), completion.tokens.begin(), completion.tokens.end());
  s.loss_mask.assign(completion.tokens.size(), 1);
  s.rollout_log_probs = std::move(completion.log_probs);
  switch (completion.finish) {
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
  s.temperature = request.sampling.greedy ? 0 : request.sampling.temperature;
  s.cached_tokens = completion.cached_tokens;
  s.prompt_text = prompt.text;
  s.label = prompt.label;
  if (prompt.metadata)
    s.metadata = prompt.metadata->dump(-1, ' ', false, Json::error_handler_t::replace);
  return s;
}

// Returns the samples of this rank's engine; none if it has no engine.
std::vector<Sample> Generator::run_engine(const GenerationRequest& request) {
  if (engine_ == nullptr) {
    wait_for_generation(std::ssize(request.groups), communicator_, request.should_stop);
    return {};
  }
  std::vector<std::vector<text::TokenId>> prompts;  // borrowed by the requests
  for (const PromptGroup& group : request.groups) prompts.push_back(group.prompt->tokens.unpack());
  std::vector<rollout::GroupRequest> groups;
  for (size_t i = 0; i < prompts.size(); ++i)
    groups.push_back({prompts[i], request.groups[i].number});
  const rollout::GenerationJob job{.groups = groups,
                                   .n_samples_per_prompt = request.n_samples_per_prompt,
                                   .sampling = request.sampling,
                                   .seed = request.seed};
  const int64_t num_samples = std::ssize(groups) * request.n_samples_per_prompt;
  observe::ProgressBar bar(request.label, num_samples, communicator_.rank() == progress_rank_);
  std::vector<Sample> samples;
  generate_on_ranks(*engine_, *ranks_, job, communicator_, request.should_stop,
                    [&](rollout::Completion completion, int64_t num_finished) {
                      samples.push_back(make_sample(request, std::move(completion)));
                      bar.advance_to(num_finished);
                    });
  bar.advance_to(num_samples);
  std::sort(samples.begin(), samples.end(), comes_before);
  return samples;
}

std::vector<Sample> Generator::generate(const GenerationRequest& request, reward::Grader& grader) {
  std::vector<Sample> mine = run_engine(request);
  dist::run_agreed(communicator_, [&] {
    observe::Span span("reward");
    grade_samples(mine, request.groups, request.seed, grader);
  });
  std::vector<Sample> all;
  for (const auto& bytes : dist::all_gather_bytes(communicator_, sample::pack_samples(mine))) {
    for (auto& sample : sample::unpack_samples(bytes)) all.push_back(std::move(sample));
  }
  std::sort(all.begin(), all.end(), comes_before);
  std::string left_out;
  try {
    left_out = mask_failed_samples(all, request);
  } catch (const Error& error) {
    throw dist::AgreedError(error);  // all ranks have the same samples
  }
  if (!left_out.empty() && communicator_.rank() == 0)
    log_warn("{}; these samples are left out", left_out);
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

std::string mask_failed_samples(std::span<Sample> samples, const GenerationRequest& request) {
  const Sample* first = nullptr;
  size_t num_failed = 0;
  for (Sample& s : samples) {
    if (!s.grader_failed) continue;
    if (first == nullptr) first = &s;
    s.loss_mask.assign(s.loss_mask.size(), 0);
    ++num_failed;
  }
  if (first == nullptr) return "";
  std::string what = fmt::format(
      "{}: the grader failed on {} of {} samples; group {} sample {}: {}", request.label,
      num_failed, samples.size(), first->group, first->sample, first->reason);
  if (num_failed == samples.size() && !request.may_lack_grades)
    throw Error(ErrorCode::kRun, what, "fix the labels, reward.rm_type or the service");
  if (request.stop_on_grader_failure) {
    throw Error(ErrorCode::kRun, what,
                "fix the labels or the service; reward.on_failure: mask leaves such samples out");
  }
  return what;
}

}  // namespace slimexx::rl

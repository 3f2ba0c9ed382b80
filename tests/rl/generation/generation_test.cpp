#include "slimexx/rl/generation.h"

#include <algorithm>
#include <map>

#include "rl/tiny_rollout.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rl {
namespace {

GenerationRequest request_for(std::span<const PromptGroup> groups) {
  return {.groups = groups,
          .n_samples_per_prompt = 4,
          .sampling = {.temperature = 0.9f,
                       .max_new_tokens = 20,
                       .stop_token_ids = {2, 7, 11},
                       .stop = {}},
          .seed = 77,
          .rollout = 3,
          .weight_version = 5,
          .label = {}};
}

// The samples on all ranks, by rank.
std::vector<std::vector<Sample>> generate(int num_ranks, const rollout::EngineOptions& options = {},
                                          uint64_t seed = 77) {
  const auto prompts = make_prompts(9);
  std::vector<std::vector<Sample>> samples(static_cast<size_t>(num_ranks));
  dist::run_thread_ranks(num_ranks, [&](dist::Collective& communicator) {
    TinyRollout tiny(communicator, options);
    SeedGrader grader;
    const auto groups = groups_of(prompts);
    GenerationRequest request = request_for(groups);
    request.seed = seed;
    samples[static_cast<size_t>(communicator.rank())] = tiny.generator.generate(request, grader);
  });
  return samples;
}

TEST(Generator, SamplesAreTheSameBitsForAnyNumberOfRanks) {
  const std::string expected = content(generate(1)[0]);
  for (const int ranks : {1, 2, 3}) {
    const auto by_rank = generate(ranks);
    for (size_t rank = 0; rank < by_rank.size(); ++rank)
      EXPECT_TRUE(content(by_rank[rank]) == expected) << "rank " << rank << " of " << ranks;
  }
  // The engine's limits have no effect either: two sequences at once, preemption, chunks of five,
  // no cache.
  const rollout::EngineOptions narrow{.page_tokens = 4,
                                      .max_running_requests = 3,
                                      .chunked_prefill_size = 5,
                                      .enable_prefix_cache = false,
                                      .max_total_tokens = 72};
  for (const int ranks : {1, 2}) {
    EXPECT_TRUE(content(generate(ranks, narrow)[0]) == expected) << ranks << " narrow ranks";
  }
  EXPECT_FALSE(content(generate(1, {}, 78)[0]) == expected) << "the seed has no say";
}

TEST(Generator, SamplesStandInThePromptsOrder) {
  const auto prompts = make_prompts(9);
  const auto samples = generate(2)[0];
  ASSERT_EQ(samples.size(), 36u);
  int completed = 0, truncated = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    const data::Prompt& prompt = prompts[i / 4];
    EXPECT_EQ(s.group, static_cast<int64_t>(i / 4));
    EXPECT_EQ(s.sample, static_cast<int64_t>(i % 4));
    ASSERT_EQ(s.prompt_length(), static_cast<int64_t>(prompt.tokens.size()));
    const auto tokens = prompt.tokens.unpack();
    EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), s.tokens.begin()));
    EXPECT_EQ(s.rollout_log_probs.size(), static_cast<size_t>(s.response_length));
    EXPECT_EQ(s.num_trained_tokens(), s.response_length);
    EXPECT_EQ(s.label, prompt.label);
    EXPECT_EQ(s.reason, "label " + prompt.label + " of " + prompt.text);
    EXPECT_EQ(s.weight_versions, (std::vector<sample::WeightSpan>{{s.response_length, 5}}));
    const int32_t last = s.tokens.back();
    const bool stopped = last == 2 || last == 7 || last == 11;
    EXPECT_EQ(s.status,
              stopped ? sample::SampleStatus::kCompleted : sample::SampleStatus::kTruncated)
        << i;
    EXPECT_TRUE(stopped || s.response_length == 20) << i;
    (stopped ? completed : truncated) += 1;
  }
  EXPECT_GT(completed, 3);
  EXPECT_GT(truncated, 3);
  EXPECT_NE(samples[0].tokens, samples[1].tokens);
}

// E1 and E4: training on a different number of ranks gives bit-identical log-probs to generation.
TEST(Generator, TrainerComputesTheSameLogProbs) {
  const auto samples = generate(2)[0];
  std::vector<sample::Sample> bare;
  for (const auto& s : samples)
    bare.push_back(
        {.tokens = s.tokens, .response_length = s.response_length, .loss_mask = s.loss_mask});
  for (const int ranks : {1, 3}) {
    dist::run_thread_ranks(ranks, [&](dist::Collective& communicator) {
      train::TinyPolicy policy("llama");
      const auto scores = policy.trainer(communicator, train::packed(90))
                              .compute_log_probs(policy.decoder, policy.store, bare);
      for (size_t i = 0; i < samples.size(); ++i)
        EXPECT_EQ(first_difference(scores[i].log_probs, samples[i].rollout_log_probs), "")
            << "sample " << i << ", " << ranks << " ranks";
    });
  }
}

TEST(Generator, NoPromptsAndMoreRanksThanPrompts) {
  const auto prompts = make_prompts(1);
  dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
    TinyRollout tiny(communicator);
    SeedGrader grader;
    EXPECT_TRUE(tiny.generator.generate(request_for({}), grader).empty());
    const auto groups = groups_of(prompts);
    EXPECT_EQ(tiny.generator.generate(request_for(groups), grader).size(), 4u);
  });
}

// If one rank is asked to stop, all give up, whether that rank still has work or never had any. The
// engines stay usable.
TEST(Generator, StopsOnAllRanksWhereOneIsAsked) {
  const std::string expected = content(generate(1)[0]);
  for (const int num_prompts : {1, 9}) {
    const auto prompts = make_prompts(num_prompts);
    const auto all_prompts = make_prompts(9);
    dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
      TinyRollout tiny(communicator);
      SeedGrader grader;
      for (int asked = 0; asked < 3; ++asked) {
        const auto groups = groups_of(prompts);
        GenerationRequest request = request_for(groups);
        request.n_samples_per_prompt = 20'000;  // a minute of work
        int calls = 0;
        request.should_stop = [&] { return communicator.rank() == asked && ++calls > 3; };
        try {
          tiny.generator.generate(request, grader);
          ADD_FAILURE() << "rank " << communicator.rank() << " went on";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
        }
      }
      const auto groups = groups_of(all_prompts);
      GenerationRequest request = request_for(groups);
      request.should_stop = [] { return false; };
      EXPECT_TRUE(content(tiny.generator.generate(request, grader)) == expected);
    });
  }
}

// Responses by group and sample.
using Responses =
    std::map<std::pair<int64_t, int64_t>, std::pair<std::vector<int32_t>, std::string>>;

// Runs one rollout per list of groups, one after another.
Responses draw_rollouts(const std::vector<std::vector<PromptGroup>>& rollouts) {
  Responses responses;
  dist::run_thread_ranks(1, [&](dist::Collective& communicator) {
    TinyRollout tiny(communicator);
    SeedGrader grader;
    for (size_t rollout = 0; rollout < rollouts.size(); ++rollout) {
      GenerationRequest request = request_for(rollouts[rollout]);
      request.rollout = static_cast<int64_t>(rollout);
      for (Sample& s : tiny.generator.generate(request, grader)) {
        EXPECT_EQ(s.rollout, request.rollout);
        const auto key = std::pair(s.group, s.sample);
        s.rollout = 0, s.cached_tokens = 0;
        responses[key] = {s.tokens, sample::pack_samples({s})};
      }
    }
  });
  return responses;
}

// Compared with the first run, the second drops groups 2 and 6 and draws group 4 two rollouts
// later.
TEST(Generator, AGroupsTokensDoNotDependOnItsRollout) {
  const auto prompts = make_prompts(9);
  const auto g = groups_of(prompts);
  const Responses expected =
      draw_rollouts({{g[0], g[1], g[2], g[3], g[4]}, {g[5], g[6], g[7], g[8]}});
  const Responses actual = draw_rollouts({{g[0], g[1], g[3]}, {g[5]}, {g[4], g[7], g[8]}});
  ASSERT_EQ(expected.size(), 36u);
  ASSERT_EQ(actual.size(), 28u);
  for (const auto& [key, response] : actual)
    EXPECT_TRUE(response == expected.at(key)) << "group " << key.first << " sample " << key.second;
  // The same prompt in two groups gets different random numbers, also for group numbers beyond 32
  // bits.
  const int64_t far = int64_t{1} << 32;
  const Responses again = draw_rollouts({{g[0], {g[0].prompt, 1}, {g[0].prompt, far}}});
  EXPECT_NE(again.at({0, 0}).first, again.at({1, 0}).first);
  EXPECT_NE(again.at({0, 0}).first, again.at({far, 0}).first);
}

TEST(GradeSamples, EverySampleHasASeedOfItsOwn) {
  class SeedCollector : public reward::Grader {
   public:
    std::vector<reward::Grade> grade(std::span<const reward::RewardInput> inputs) override {
      for (const auto& input : inputs) seeds.push_back(input.seed);
      return std::vector<reward::Grade>(inputs.size());
    }
    std::vector<uint64_t> seeds;
  };
  const auto prompts = make_prompts(5);
  std::vector<Sample> samples;
  for (int64_t i = 0; i < 40; ++i) {
    Sample s;
    s.group = i / 8, s.sample = i % 8;
    samples.push_back(s);
  }
  SeedCollector grader;
  grade_samples(samples, groups_of(prompts), 9, grader);
  std::ranges::sort(grader.seeds);
  EXPECT_EQ(std::ranges::adjacent_find(grader.seeds), grader.seeds.end());
}

TEST(Generator, SamplesWithoutAGradeAreMaskedOrStopTheRun) {
  const auto prompts = make_prompts(3);
  const auto groups = groups_of(prompts);
  for (const int ranks : {1, 2}) {
    dist::run_thread_ranks(ranks, [&](dist::Collective& communicator) {
      TinyRollout tiny(communicator);
      HalfGrader grader;
      GenerationRequest request = request_for(groups);
      request.label = "rollout 3";
      for (const Sample& s : tiny.generator.generate(request, grader)) {
        EXPECT_EQ(s.grader_failed, s.group == 1);
        EXPECT_EQ(s.num_trained_tokens(), s.group == 1 ? 0 : s.response_length);
        EXPECT_EQ(s.values.size(), s.group == 1 ? 0u : 1u);
        EXPECT_EQ(s.prediction, "p" + s.label);
      }
      request.stop_on_grader_failure = true;
      try {
        tiny.generator.generate(request, grader);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kRun);
        EXPECT_EQ(
            error.message(),
            "rollout 3: the grader failed on 4 of 12 samples; group 1 sample 0: no such label");
      }
      request.stop_on_grader_failure = false;
      grader.fails_always = true;
      EXPECT_THROW(tiny.generator.generate(request, grader), Error);
      request.may_lack_grades = true;  // the caller drops such groups
      for (const Sample& s : tiny.generator.generate(request, grader))
        EXPECT_EQ(s.num_trained_tokens(), 0);
      request.stop_on_grader_failure = true;
      EXPECT_THROW(tiny.generator.generate(request, grader), Error);
    });
  }
}

}  // namespace
}  // namespace slimexx::rl

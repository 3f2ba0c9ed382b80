#include "slimexx/rl/evaluation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "rl/tiny_rollout.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"
#include "test_paths.h"

namespace slimexx::rl {
namespace {

TEST(PassAtK, ByHand) {
  EXPECT_EQ(pass_at_k(1, 0, 1), 0);
  EXPECT_EQ(pass_at_k(1, 1, 1), 1);
  EXPECT_DOUBLE_EQ(pass_at_k(8, 1, 1), 0.125);
  EXPECT_DOUBLE_EQ(pass_at_k(8, 1, 4), 0.5);
  EXPECT_DOUBLE_EQ(pass_at_k(8, 4, 2), 1 - 6.0 / 28);  // C(4,2) of C(8,2) pairs are all wrong
  EXPECT_EQ(pass_at_k(8, 0, 8), 0);
  EXPECT_EQ(pass_at_k(8, 1, 8), 1);
  EXPECT_EQ(pass_at_k(8, 5, 4),
            1);  // only three samples are wrong, so every group of four has a correct one
  EXPECT_NEAR(pass_at_k(10000, 1, 100), 0.01, 1e-12);
}

// Counts all subsets of k of n samples; the first c samples are correct.
TEST(PassAtK, AgreesWithCounting) {
  for (uint32_t n = 1; n <= 9; ++n) {
    for (uint32_t c = 0; c <= n; ++c) {
      for (uint32_t k = 1; k <= n; ++k) {
        double subsets = 0, passing = 0;
        for (uint32_t subset = 0; subset < (1u << n); ++subset) {
          if (static_cast<uint32_t>(std::popcount(subset)) != k) continue;
          subsets += 1;
          passing += (subset & ((1u << c) - 1)) != 0;
        }
        EXPECT_NEAR(pass_at_k(n, c, k), passing / subsets, 1e-12)
            << "n " << n << " c " << c << " k " << k;
      }
    }
  }
}

TEST(PassAtK, SharedVectors) {
  std::ifstream file(test_data_path("golden/grading/schedule_vectors.json"));
  ASSERT_TRUE(file);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const Json vectors = parse_json(text, "schedule_vectors.json");
  for (const Json& row : vectors.at("pass_at_k")) {
    EXPECT_NEAR(
        pass_at_k(row["n"].get<int64_t>(), row["c"].get<int64_t>(), row["k"].get<int64_t>()),
        row["v"].get<double>(), 1e-12)
        << row.dump();
  }
}

TEST(Evaluation, RewardOptionsFallBackToThoseOfTraining) {
  RunConfig config;
  config.reward.rm_type = "dapo";
  config.reward.reward_key = "score";
  EXPECT_EQ(eval_reward_options(config).rm_type, "dapo");
  EXPECT_EQ(eval_reward_options(config).reward_key, "score");
  config.eval.eval_reward_key = "acc";
  EXPECT_EQ(eval_reward_options(config).reward_key, "acc");
  // Another grader does not inherit a key that it may not know.
  config.eval.eval_reward_key.clear();
  config.eval.eval_rm_type = "math";
  EXPECT_EQ(eval_reward_options(config).rm_type, "math");
  EXPECT_EQ(eval_reward_options(config).reward_key, "");
}

class EvaluationRun : public testing::Test {
 protected:
  EvaluationRun()
      : directory_(std::filesystem::temp_directory_path() /
                   ("slimexx_eval_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(directory_);
    write_set("first.jsonl", 5, 3);
    write_set("second.jsonl", 2, 9);
    config_.rollout.rollout_max_response_len = 12;
    config_.eval.n_samples_per_eval_prompt = 4;
    config_.eval.eval_prompt_data = {{"first", (directory_ / "first.jsonl").string()},
                                     {"second", (directory_ / "second.jsonl").string()}};
  }
  ~EvaluationRun() override { std::filesystem::remove_all(directory_); }

  void write_set(const std::string& name, int rows, int32_t token) const {
    std::ofstream file(directory_ / name);
    for (int i = 0; i < rows; ++i)
      file << "{\"tokens\": [" << token + i << ", 5, " << 20 + i << "], \"label\": \"" << i
           << "\"}\n";
  }

  std::vector<EvalResult> run(int num_ranks, observe::MetricRow& row, int64_t weight_version = 0) {
    std::vector<EvalResult> results;
    dist::run_thread_ranks(num_ranks, [&](dist::Collective& communicator) {
      TinyRollout tiny(communicator);
      SeedGrader grader;
      observe::MetricRow own_row;
      auto own = evaluate(load_eval_sets(config_, nullptr, nullptr), config_, tiny.generator,
                          grader, {2, 7, 11}, 6, weight_version, samples_file(),
                          communicator.rank() == 0, own_row);
      if (communicator.rank() == 0) results = std::move(own), row = own_row;
    });
    return results;
  }

  std::function<std::string(const std::string&)> samples_file() const {
    return [this](const std::string& set) {
      return (directory_ / ("eval_" + set + "_000006.jsonl")).string();
    };
  }
  std::filesystem::path directory_;
  RunConfig config_;
};

// Recomputes every metric from the per-sample lines.
TEST_F(EvaluationRun, FiguresAreThoseOfTheLines) {
  observe::MetricRow row;
  const auto results = run(2, row);
  ASSERT_EQ(results.size(), 2u);
  const int64_t prompts[] = {5, 2};
  for (size_t set = 0; set < 2; ++set) {
    const EvalResult& r = results[set];
    const auto samples =
        sample::load_rollout((directory_ / ("eval_" + r.name + "_000006.jsonl")).string());
    EXPECT_EQ(r.num_prompts, prompts[set]);
    ASSERT_EQ(static_cast<int64_t>(samples.size()), 4 * prompts[set]);
    double reward = 0, length = 0, truncated = 0;
    std::map<int64_t, int> correct;
    for (const auto& s : samples) {
      reward += s.reward, length += static_cast<double>(s.response_length);
      truncated += s.status == sample::SampleStatus::kTruncated;
      correct[s.group] += s.reward == 1;
    }
    const auto n = static_cast<double>(samples.size());
    EXPECT_DOUBLE_EQ(r.mean_reward, reward / n);
    EXPECT_DOUBLE_EQ(r.mean_response_length, length / n);
    EXPECT_DOUBLE_EQ(r.truncated_ratio, truncated / n);
    ASSERT_EQ(r.pass_at.size(), 3u);  // 1, 2, 4
    // Rewards are 0 or 1: pass@1 is the mean, pass@4 the share of prompts with a correct sample.
    EXPECT_NEAR(r.pass_at[0].second, reward / n, 1e-12);
    double any = 0;
    for (const auto& [group, c] : correct) any += c > 0;
    EXPECT_EQ(r.pass_at[2].first, 4);
    EXPECT_NEAR(r.pass_at[2].second, any / static_cast<double>(correct.size()), 1e-12);
    EXPECT_GE(r.pass_at[1].second, r.pass_at[0].second);
    EXPECT_EQ(*row.find("eval/" + r.name), r.mean_reward);
    EXPECT_EQ(*row.find("eval/" + r.name + "/pass@2"), r.pass_at[1].second);
    EXPECT_EQ(*row.find("eval/" + r.name + "/truncated_ratio"), r.truncated_ratio);
    EXPECT_NEAR(*row.find("eval/" + r.name + "/response_len/mean"), r.mean_response_length, 1e-12);
  }
  const std::string table = format_eval_table(results);
  for (const std::string part : {"first", "second", "pass@1", "(k=4)", "truncated"})
    EXPECT_NE(table.find(part), std::string::npos) << table;
}

TEST_F(EvaluationRun, SamplesWithoutAGradeAreInNoFigure) {
  config_.eval.eval_prompt_data.resize(1);
  dist::run_thread_ranks(1, [&](dist::Collective& communicator) {
    TinyRollout tiny(communicator);
    HalfGrader grader;  // 1 for four of five prompts
    observe::MetricRow row;
    const auto results =
        evaluate(load_eval_sets(config_, nullptr, nullptr), config_, tiny.generator, grader,
                 {2, 7, 11}, 6, 0, samples_file(), true, row);
    EXPECT_EQ(results[0].num_failed, 4);
    EXPECT_EQ(results[0].mean_reward, 1);
    EXPECT_EQ(results[0].pass_at.back(), (std::pair<int64_t, double>{4, 1}));
    EXPECT_EQ(*row.find("eval/first/grader_failed"), 4);
    EXPECT_EQ(*row.find("eval/first/reward/acc"), 0.5);
    EXPECT_NE(format_eval_table(results).find("20 (4 not graded)"), std::string::npos);
    config_.reward.on_failure = "stop";
    EXPECT_THROW(evaluate(load_eval_sets(config_, nullptr, nullptr), config_, tiny.generator,
                          grader, {2, 7, 11}, 6, 0, {}, true, row),
                 Error);
  });
}

// Every evaluation draws the same random numbers, different for each set: only the weights change
// the result.
TEST_F(EvaluationRun, RepeatsItselfForAnyNumberOfRanks) {
  observe::MetricRow row;
  const auto expected = run(1, row, 10);
  for (const int ranks : {1, 3}) {
    const auto again = run(ranks, row, 10);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(again[i].mean_reward, expected[i].mean_reward);
      EXPECT_EQ(again[i].mean_response_length, expected[i].mean_response_length);
      EXPECT_EQ(again[i].pass_at, expected[i].pass_at);
    }
  }
}

// The samples of a set do not change when other sets are added or removed.
TEST_F(EvaluationRun, OtherSetsHaveNoSay) {
  observe::MetricRow row;
  run(1, row);
  const std::string path = (directory_ / "eval_second_000006.jsonl").string();
  const std::string among_others = content(sample::load_rollout(path));
  config_.eval.eval_prompt_data.erase(config_.eval.eval_prompt_data.begin());
  run(1, row);
  EXPECT_TRUE(content(sample::load_rollout(path)) == among_others);
  config_.eval.eval_prompt_data[0].first = "renamed";
  run(1, row);
  const std::string renamed = (directory_ / "eval_renamed_000006.jsonl").string();
  EXPECT_FALSE(content(sample::load_rollout(renamed)) == among_others);
}

TEST_F(EvaluationRun, LeavesNoMetricsWhenItIsStopped) {
  dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
    TinyRollout tiny(communicator);
    SeedGrader grader;
    observe::MetricRow row;
    row.set("train/loss", 1);
    // The first set is complete when the second one is stopped.
    const bool is_root = communicator.rank() == 0;
    const auto second_began = [&] {
      return std::filesystem::exists(directory_ / "eval_first_000006.jsonl");
    };
    try {
      evaluate(load_eval_sets(config_, nullptr, nullptr), config_, tiny.generator, grader,
               {2, 7, 11}, 6, 0, samples_file(), is_root, row, second_began);
      ADD_FAILURE() << "it went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
    }
    EXPECT_EQ(row.values().size(), 1u);
  });
  EXPECT_TRUE(std::filesystem::exists(directory_ / "eval_first_000006.jsonl"));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "eval_second_000006.jsonl"));
}

// Temperature 0 is greedy: all samples of a prompt are equal.
TEST_F(EvaluationRun, GreedyAtTemperatureZero) {
  config_.eval.eval_temperature = 0;
  config_.eval.eval_max_response_len = 7;
  observe::MetricRow row;
  run(1, row);
  const auto samples = sample::load_rollout((directory_ / "eval_first_000006.jsonl").string());
  for (size_t i = 0; i < samples.size(); ++i) {
    EXPECT_EQ(samples[i].temperature, 0.0f);
    EXPECT_EQ(samples[i].tokens, samples[i / 4 * 4].tokens) << i;
    EXPECT_LE(samples[i].response_length, 7);
  }
}

}  // namespace
}  // namespace slimexx::rl

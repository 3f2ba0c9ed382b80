// Compares forward, losses and gradients with f32 results of PyTorch and transformers on tiny
// checkpoints: tests/golden/models (always present) and the shared oracles (if present).
#include <gtest/gtest.h>

#include <filesystem>

#include "train/oracle.h"

namespace slimexx::train {
namespace {

std::vector<std::string> oracle_directories() {
  std::vector<std::string> directories;
  for (const auto& entry : std::filesystem::directory_iterator(test_data_path("golden/models"))) {
    directories.push_back(entry.path().string());
  }
  for (const char* family : {"qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe", "glm4_moe_lite",
                             "deepseek_v3", "glm_moe_dsa"}) {
    directories.push_back(test_data_path("golden/oracle/") + family);
  }
  std::sort(directories.begin(), directories.end());
  return directories;
}

class OracleTest : public testing::TestWithParam<std::string> {};

TEST_P(OracleTest, LogProbsAndEntropies) {
  Oracle oracle(GetParam());
  const auto log_probs = read_floats(oracle.file, "logprobs"),
             entropies = read_floats(oracle.file, "entropy");
  std::vector<Sample> samples;
  for (int64_t b = 0; b < oracle.batch; ++b) samples.push_back(oracle.sample(b, 1, oracle.length));
  const auto scores = oracle.trainer().compute_log_probs(oracle.decoder, oracle.store, samples);
  for (int64_t b = 0; b < oracle.batch; ++b) {
    for (int64_t t = 0; t + 1 < oracle.length; ++t) {
      const auto at = static_cast<size_t>(b * (oracle.length - 1) + t);
      EXPECT_NEAR(scores[static_cast<size_t>(b)].log_probs[static_cast<size_t>(t)], log_probs[at],
                  kLogProbTolerance)
          << "row " << b << " token " << t;
      EXPECT_NEAR(scores[static_cast<size_t>(b)].entropies[static_cast<size_t>(t)], entropies[at],
                  kLogProbTolerance)
          << "row " << b << " token " << t;
    }
  }
}

TEST_P(OracleTest, SftGradients) {
  Oracle oracle(GetParam());
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  loss.per_token_loss = true;
  const StepResult result = oracle.trainer().step(oracle.masked_samples(), loss, 0);
  EXPECT_NEAR(result.metric(ops::LossMetric::kLoss), read_floats(oracle.file, "sft.loss")[0], 1e-4);
  oracle.expect_gradients("sft.grad.");
}

TEST_P(OracleTest, GrpoGradients) {
  Oracle oracle(GetParam());
  const auto advantages = read_floats(oracle.file, "grpo.advantages");
  const auto old = read_floats(oracle.file, "grpo.old_logprobs"),
             ref = read_floats(oracle.file, "grpo.ref_logprobs");
  StepLoss loss;
  loss.policy = {.eps_clip = 0.2f,
                 .eps_clip_high = 0.28f,
                 .entropy_coef = 0.001f,
                 .use_kl = true,
                 .kl_coef = 0.01f};
  // Kept and recomputed activations, one packed microbatch and one per sample give the same
  // gradients.
  for (const auto& [recompute, tokens] :
       {std::pair{"none", 4096}, {"full", 4096}, {"none", 1}, {"full", 1}}) {
    std::vector<Sample> samples;
    for (int64_t b = 0; b < oracle.batch; ++b) {
      int64_t start = 0;
      Sample s = oracle.masked_sample(b, &start);
      s.advantages.assign(static_cast<size_t>(s.response_length),
                          advantages[static_cast<size_t>(b)]);
      s.old_log_probs = oracle.slice(old, b, start, s.response_length);
      s.ref_log_probs = oracle.slice(ref, b, start, s.response_length);
      samples.push_back(std::move(s));
    }
    TrainOptions options;
    options.recompute_granularity = recompute;
    options.max_tokens_per_gpu = tokens;
    options.max_logits_gib =
        tokens == 1 ? 1e-6 : 0.25;  // the head computes chunks of a few rows, or all rows at once
    const StepResult result = oracle.trainer(options).step(samples, loss, 0);
    EXPECT_NEAR(result.metric(ops::LossMetric::kLoss), read_floats(oracle.file, "grpo.loss")[0],
                1e-4);
    oracle.expect_gradients("grpo.grad.");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, OracleTest, testing::ValuesIn(oracle_directories()),
                         [](const auto& instance) {
                           const bool shared = instance.param.find("/oracle/") != std::string::npos;
                           return (shared ? "shared_" : "golden_") +
                                  std::filesystem::path(instance.param).filename().string();
                         });

}  // namespace
}  // namespace slimexx::train

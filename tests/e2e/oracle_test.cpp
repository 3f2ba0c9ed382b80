// Compares with the reference implementation's results on tiny checkpoints, through the command
// line: losses, log-probs, gradients of the GRPO and the supervised loss, one AdamW step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "e2e/tensor_files.h"
#include "test_paths.h"

namespace slimexx::e2e {
namespace {

constexpr double kLogProbTolerance = 2e-4;   // absolute
constexpr double kGradientTolerance = 1e-3;  // ||a - b|| / ||b|| per tensor

struct Case {
  std::string name, folder;
  int num_ranks;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " on " << c.num_ranks; }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const int num_ranks : {0, 2}) {
    for (const Family& family : families()) {
      cases.push_back(
          {"golden_" + family.name, test_data_path("golden/") + family.model, num_ranks});
    }
    for (const std::string name : {"qwen2", "qwen3", "glm4"}) {
      cases.push_back({"oracle_" + name, test_data_path("golden/oracle/" + name), num_ranks});
    }
    for (const std::string name : {"llama", "qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe",
                                   "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"}) {
      cases.push_back({"odd_" + name, test_data_path("golden/models/" + name + "_odd"), num_ranks});
    }
  }
  return cases;
}

// The oracle's batch as input rows for score and as a rollout dump.
class Oracle {
 public:
  explicit Oracle(const std::string& folder)
      : path_(folder + "/oracle.safetensors"),
        tensors_(read_tensors(path_)),
        ids_(read_int64(path_, "input_ids")),
        mask_(tensors_.at("response_mask")) {}

  int64_t batch() const { return mask_.shape[0]; }
  int64_t length() const { return mask_.shape[1]; }
  const std::vector<float>& values(const std::string& name) const { return tensors_.at(name).data; }
  Tensors with_prefix(const std::string& prefix) const { return read_tensors(path_, prefix); }

  std::string score_rows() const {
    std::string lines;
    for (int64_t b = 0; b < batch(); ++b)
      lines += Json{{"tokens", tokens(b, length())}}.dump() + "\n";
    return lines;
  }

  // Odd rows keep the tokens after the response, masked; even rows end with the response.
  std::string dump_rows(bool with_policy) const {
    std::string lines;
    for (int64_t b = 0; b < batch(); ++b) {
      const auto row = mask_.data.begin() + b * length();
      const auto begin = std::find(row, row + length(), 1.0f) - row;
      const auto learnt = std::count(row, row + length(), 1.0f);
      const int64_t end = b % 2 == 1 ? length() : begin + learnt;
      Json sample = {{"group", b},
                     {"sample", 0},
                     {"tokens", tokens(b, end)},
                     {"response_length", end - begin},
                     {"reward", 0},
                     {"status", "completed"}};
      sample["loss_mask"] = std::vector<int>(row + begin, row + end);
      if (with_policy) {
        sample["advantage"] = values("grpo.advantages")[static_cast<size_t>(b)];
        sample["old_log_probs"] = slice("grpo.old_logprobs", b, begin, end);
        sample["ref_log_probs"] = slice("grpo.ref_logprobs", b, begin, end);
      }
      lines += sample.dump() + "\n";
    }
    return lines;
  }

 private:
  std::vector<int64_t> tokens(int64_t b, int64_t end) const {
    const auto row = ids_.begin() + b * length();
    return {row, row + end};
  }
  // Entry t of a [batch, length - 1] tensor is for token t + 1.
  std::vector<double> slice(const std::string& name, int64_t b, int64_t begin, int64_t end) const {
    const auto row = values(name).begin() + b * (length() - 1);
    return {row + begin - 1, row + end - 1};
  }

  std::string path_;
  Tensors tensors_;
  std::vector<int64_t> ids_;
  const Values& mask_;
};

// The oracle has zero gradients for frozen parameters; the program has none.
void drop_frozen(Tensors& expected) {
  std::erase_if(expected, [](const auto& entry) {
    const auto& [name, values] = entry;
    if (name.find(".indexer.") == std::string::npos) return false;
    EXPECT_EQ(std::ranges::count(values.data, 0.0f), std::ssize(values.data)) << name;
    return true;
  });
}

void expect_gradients(const Tensors& got, Tensors expected) {
  ASSERT_GT(expected.size(), 10u);
  drop_frozen(expected);
  EXPECT_EQ(got.size(), expected.size());
  for (const auto& [name, values] : expected) {
    const auto it = got.find(name);
    ASSERT_NE(it, got.end()) << "no gradient of " << name;
    EXPECT_EQ(it->second.shape, values.shape) << name;
    const Difference d = compare(it->second.data, values.data);
    EXPECT_LE(d.relative, kGradientTolerance)
        << name << ": largest at [" << d.where << "], |d| " << d.max_abs << ", norm " << d.norm;
  }
}

class OracleTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string reason = GetParam().num_ranks > 0 ? why_no_ranks() : "";
    if (!reason.empty()) GTEST_SKIP() << reason;
  }

  // Trains one step on the oracle's batch; returns the step's row.
  Json train(const Oracle& oracle, bool with_policy, std::vector<std::string> settings) const {
    folder_.put("dump.jsonl", oracle.dump_rows(with_policy));
    for (const std::string& setting :
         {"model.hf_checkpoint=" + GetParam().folder,
          "debug.load_rollout=" + (folder_ / "dump.jsonl"),
          "debug.dump_gradients=" + folder_.path(), "debug.dump_weights=" + folder_.path(),
          "observe.run_dir=" + (folder_ / "run"), std::string("observe.tensorboard=false"),
          "train.global_batch_size=" + std::to_string(oracle.batch()),
          std::string("train.max_tokens_per_gpu=60")}) {
      settings.push_back(setting);
    }
    std::vector<std::string> arguments = {"train", "--config", folder_.put("run.yaml", "{}\n"),
                                          "--set"};
    arguments.insert(arguments.end(), settings.begin(), settings.end());
    const Finished f = run_slimexx(GetParam().num_ranks, arguments);
    EXPECT_EQ(f.status, 0) << f.text();
    const auto rows = read_rows(folder_ / "run/metrics.jsonl");
    EXPECT_EQ(rows.size(), 1u);
    return rows.empty() ? Json::object() : rows[0];
  }

  Folder folder_;
};

TEST_P(OracleTest, LogProbsOfScore) {
  const Oracle oracle(GetParam().folder);
  const Finished f =
      run_slimexx(GetParam().num_ranks, {"score", "--hf-checkpoint", GetParam().folder, "--input",
                                         folder_.put("in.jsonl", oracle.score_rows()), "--output",
                                         folder_ / "out.jsonl"});
  ASSERT_EQ(f.status, 0) << f.text();
  const auto rows = read_rows(folder_ / "out.jsonl");
  ASSERT_EQ(std::ssize(rows), oracle.batch());
  for (const auto& [key, name] : {std::pair{"logprobs", "logprobs"}, {"entropy", "entropy"}}) {
    std::vector<float> got;
    for (const Json& row : rows) {
      for (const Json& value : row.at(key)) got.push_back(value.get<float>());
    }
    const Difference d = compare(got, oracle.values(name));
    EXPECT_LE(d.max_abs, kLogProbTolerance) << name << "[" << d.where << "]";
  }
}

TEST_P(OracleTest, GradientsOfGrpo) {
  const Oracle oracle(GetParam().folder);
  const Json row =
      train(oracle, true,
            {"model.ref_load=" + GetParam().folder, "rl.advantage_estimator=grpo",
             "rl.eps_clip=0.2", "rl.eps_clip_high=0.28", "rl.use_kl_loss=true",
             "rl.kl_loss_coef=0.01", "rl.kl_loss_type=low_var_kl", "rl.entropy_coef=0.001"});
  EXPECT_NEAR(number(row, "train/loss"), oracle.values("grpo.loss")[0], kLogProbTolerance);
  expect_gradients(read_tensors(folder_ / "gradients.safetensors"),
                   oracle.with_prefix("grpo.grad."));
}

// AdamW's first step in closed form: after bias correction both moments come from this gradient
// alone.
void expect_adamw_step(const Tensors& before, const Tensors& gradients, const Tensors& after) {
  constexpr double kLr = 1e-2, kEps = 1e-8, kDecay = 0.1;
  for (const auto& [name, values] : after) {
    const auto& w = before.at(name).data;
    if (!gradients.contains(name)) {  // frozen: no gradient, no decay
      EXPECT_EQ(values.data, w) << name;
      continue;
    }
    const auto& g = gradients.at(name).data;
    const double decay = values.shape.size() > 1 ? kLr * kDecay : 0;  // 1-D parameters do not decay
    for (size_t i = 0; i < w.size(); ++i) {
      const double gradient = static_cast<double>(g[i]);
      // Below eps, the f32 square of the gradient has too few digits.
      if (gradient != 0 && std::abs(gradient) < 1e-6) continue;
      const double expected =
          static_cast<double>(w[i]) * (1 - decay) - kLr * gradient / (std::abs(gradient) + kEps);
      ASSERT_NEAR(values.data[i], expected, 1e-6) << name << "[" << i << "], gradient " << gradient;
    }
  }
}

TEST_P(OracleTest, GradientsAndStepOfSupervisedLoss) {
  const Oracle oracle(GetParam().folder);
  const Json row =
      train(oracle, false,
            {"train.loss_type=sft", "rl.per_token_loss=true", "optimizer.lr=1e-2",
             "optimizer.adam_beta1=0.9", "optimizer.adam_beta2=0.98", "optimizer.adam_eps=1e-8",
             "optimizer.weight_decay=0.1", "optimizer.clip_grad=0"});
  EXPECT_NEAR(number(row, "train/sft_loss"), oracle.values("sft.loss")[0], kLogProbTolerance);
  const Tensors gradients = read_tensors(folder_ / "gradients.safetensors");
  expect_gradients(gradients, oracle.with_prefix("sft.grad."));
  Tensors before = read_tensors(GetParam().folder + "/model.safetensors");
  std::erase_if(before, [](const auto& entry) { return entry.second.data.empty(); });
  const Tensors after = read_tensors(folder_ / "weights.safetensors");
  ASSERT_EQ(after.size(), before.size());
  expect_adamw_step(before, gradients, after);
  for (const auto& [name, norm] : oracle.with_prefix("sft.after_norm.")) {
    if (after.at(name).shape.size() < 2) continue;  // the oracle decays biases and norms too
    if (!gradients.contains(name)) continue;        // frozen: compared above
    const Difference moved = compare(after.at(name).data, before.at(name).data);
    EXPECT_NEAR(moved.relative * moved.norm / norm.data[0], 1, kGradientTolerance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, OracleTest, testing::ValuesIn(all_cases()),
                         [](const auto& instance) {
                           const Case& c = instance.param;
                           return c.name + (c.num_ranks > 0 ? "_2_ranks" : "");
                         });

}  // namespace
}  // namespace slimexx::e2e

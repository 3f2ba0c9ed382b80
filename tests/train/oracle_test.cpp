// Forward, losses and gradients against what PyTorch and transformers computed in f32 on tiny
// checkpoints: tests/golden/models (always there) and the shared oracles (where they are).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "slimexx/base/error.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/trainer.h"
#include "test_paths.h"

namespace slimexx::train {
namespace {

constexpr double kLogProbTolerance = 2e-4;   // absolute
constexpr double kGradientTolerance = 1e-3;  // relative by tensor

std::vector<float> read_floats(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw Error(ErrorCode::kInput, "missing " + name, "", file.path());
  std::vector<float> values(static_cast<size_t>(entry->num_elements()));
  file.read(*entry, 0, entry->num_elements(), values.data());
  return values;
}

struct Oracle {
  explicit Oracle(const std::string& directory)
      : folder(io::HfFolder::open(directory)),
        file(directory + "/oracle.safetensors"),
        spec(read_spec(folder, directory)),
        decoder(spec, {}, 256),
        store(spec, {}, true) {
    model::load_hf_weights(store, spec, folder);
    const io::TensorEntry* ids = file.find("input_ids");
    batch = ids->shape[0];
    length = ids->shape[1];
    input_ids.resize(static_cast<size_t>(ids->num_elements()));
    file.read(*ids, 0, ids->num_elements(), input_ids.data());
    mask = read_floats(file, "response_mask");
  }

  static model::ModelSpec read_spec(const io::HfFolder& folder, const std::string& directory) {
    model::ModelSpec spec = model::read_model_spec(folder.config(), directory + "/config.json");
    model::drop_missing_mtp(spec, folder);
    return spec;
  }
  // Row b up to token `end`, its response from token `start`.
  Sample sample(int64_t b, int64_t start, int64_t end) const {
    Sample s;
    for (int64_t t = 0; t < end; ++t)
      s.tokens.push_back(static_cast<int32_t>(input_ids[static_cast<size_t>(b * length + t)]));
    s.response_length = end - start;
    s.loss_mask.assign(static_cast<size_t>(s.response_length), 1);
    return s;
  }
  // Row b with the response that the oracle's mask marks.
  Sample masked_sample(int64_t b, int64_t* start) const {
    const float* row = mask.data() + b * length;
    *start = std::find(row, row + length, 1.0f) - row;
    const int64_t end =
        length - (std::find(std::reverse_iterator(row + length), std::reverse_iterator(row), 1.0f) -
                  std::reverse_iterator(row + length));
    return sample(b, *start, end);
  }
  std::vector<float> slice(const std::vector<float>& values, int64_t b, int64_t start,
                           int64_t n) const {
    const auto begin = values.begin() + b * (length - 1) + start - 1;
    return {begin, begin + n};
  }

  Trainer trainer(const TrainOptions& options = {}) {
    OptimizerOptions optimizer;
    optimizer.lr = 0;
    return Trainer(decoder, store, ranks, dist::groups_of_one(), options, optimizer, 1.0f, {});
  }

  void expect_gradients(const std::string& prefix) const {
    struct Difference {
      double squares = 0, norm = 0;
    };
    std::map<std::string, Difference> differences;  // by the tensor's name on disk
    for (const auto& info : store.infos()) {
      if (!info.trainable) continue;
      const float* gradient = store.gradient(info.id).f32();
      for (const auto& run : model::list_runs(info)) {
        const std::string& name = info.parts[run.part].name;
        const std::vector<float> expected = read_floats(file, prefix + name);
        Difference& difference = differences[name];
        for (int64_t i = 0; i < run.size; ++i) {
          const double value = expected[static_cast<size_t>(run.on_disk + i)];
          const double d = double{gradient[run.in_parameter + i]} - value;
          difference.squares += d * d;
          difference.norm += value * value;
        }
      }
    }
    for (const auto& [name, d] : differences)
      EXPECT_LT(std::sqrt(d.squares / std::max(d.norm, 1e-30)), kGradientTolerance)
          << prefix << name << " norm " << std::sqrt(d.norm);
  }

  io::HfFolder folder;
  io::SafetensorsFile file;
  model::ModelSpec spec;
  model::Decoder decoder;
  model::ParameterStore store;
  dist::Collective ranks;
  std::vector<int64_t> input_ids;
  std::vector<float> mask;
  int64_t batch = 0, length = 0;
};

std::vector<std::string> oracle_directories() {
  std::vector<std::string> directories;
  for (const auto& entry : std::filesystem::directory_iterator(test_data_path("golden/models"))) {
    directories.push_back(entry.path().string());
  }
  for (const char* family :
       {"qwen2", "qwen3", "qwen3_moe", "glm4", "glm4_moe", "glm4_moe_lite", "deepseek_v3"}) {
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
  std::vector<Sample> samples;
  int64_t start = 0;
  for (int64_t b = 0; b < oracle.batch; ++b) samples.push_back(oracle.masked_sample(b, &start));
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  loss.per_token_loss = true;
  const StepResult result = oracle.trainer().step(samples, loss, 0);
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
  // Whole and recomputed activations, one packed microbatch and one per sample: the same gradients.
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
        tokens == 1 ? 1e-6 : 0.25;  // the head in chunks of a few rows, and whole
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

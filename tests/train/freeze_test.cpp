// Tests freezing parameters by name: weight decay does not change them, they have no gradients and
// do not count in the norm, and all other gradients keep their bits.
#include <cmath>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "io/content_hash.h"
#include "train/grids/grid_run.h"

namespace slimexx::train {
namespace {

using Names = std::set<std::string>;

struct FrozenCase {
  std::string name, folder;
};
void PrintTo(const FrozenCase& c, std::ostream* out) { *out << c.name; }

GridRun small_run(const std::string& folder) {
  GridRun run{.folder = test_data_path("golden/" + folder), .options = packed(48), .num_steps = 2};
  run.optimizer.weight_decay = 0.1;
  run.optimizer.clip_grad = 0;  // so that the norm does not scale the gradients
  run.learning_rate = 1e-2;
  return run;
}

std::string exactly(const std::string& name) {
  std::string pattern = "^";
  for (const char c : name) pattern += c == '.' ? "\\." : std::string(1, c);
  return pattern + "$";
}

std::string hash_of(const std::vector<float>& values) {
  return io::hash_text({reinterpret_cast<const char*>(values.data()), values.size() * 4});
}

std::vector<Sample> samples_for(const std::string& folder) {
  return mixed_samples(6, 8, folder.starts_with("models") ? 96 : 320);
}

double norm_without(const TensorValues& gradients, const Names& frozen) {
  double sum = 0;
  for (const auto& [name, values] : gradients)
    for (const float x : values) sum += frozen.contains(name) ? 0 : double{x} * x;
  return std::sqrt(sum);
}

// `whole` is a run that trains everything, `start` one that trains nothing.
void expect_frozen(const GridResult& run, const GridResult& whole, const GridResult& start,
                   const Names& frozen, const std::string& what) {
  EXPECT_EQ(run.scores[0].log_probs, whole.scores[0].log_probs) << what;
  for (const auto& [name, gradient] : whole.gradients) {
    ASSERT_EQ(run.gradients.contains(name), !frozen.contains(name)) << what << ": " << name;
    if (frozen.contains(name)) continue;
    EXPECT_EQ(first_difference(run.gradients.at(name), gradient), "") << what << ": " << name;
  }
  for (const auto& [name, values] : start.weights) {
    const bool is_trained = whole.gradients.contains(name) && !frozen.contains(name);
    EXPECT_EQ(hash_of(run.weights.at(name)) == hash_of(values), !is_trained)
        << what << ": " << name;
  }
  EXPECT_NEAR(run.steps[0].gradient_norm / norm_without(whole.gradients, frozen), 1, 1e-6) << what;
}

GridResult without_steps(GridRun run, std::span<const Sample> samples) {
  run.num_steps = 0;
  return run_on_grid(run, samples);
}

class EveryParameter : public testing::TestWithParam<FrozenCase> {};

// Freezes each matrix, bias and norm alone, so that every block runs with a missing gradient.
TEST_P(EveryParameter, FreezesAlone) {
  GridRun run = small_run(GetParam().folder);
  const std::vector<Sample> samples = samples_for(GetParam().folder);
  const GridResult whole = run_on_grid(run, samples), start = without_steps(run, samples);
  const io::HfFolder folder = io::HfFolder::open(run.folder);
  model::ModelSpec spec = model::read_model_spec(folder.config(), run.folder);
  model::drop_missing_mtp(spec, folder);
  std::set<std::string> kinds;  // names without layer numbers: one layer per kind suffices
  for (const model::ParameterInfo& info : model::list_parameters(spec)) {
    std::string kind = info.name;
    std::erase_if(kind, [](char c) { return '0' <= c && c <= '9'; });
    if (!info.trainable || !kinds.insert(kind).second) continue;
    Names frozen;
    run.frozen.clear();
    for (const model::HfPart& part : info.parts)
      if (frozen.insert(part.name).second) run.frozen.push_back(exactly(part.name));
    expect_frozen(run_on_grid(run, samples), whole, start, frozen, info.name);
  }
  EXPECT_GE(kinds.size(), 8u);
}

INSTANTIATE_TEST_SUITE_P(Families, EveryParameter,
                         testing::Values(FrozenCase{"qwen3_tied", "models/qwen3_tied_mqa"},
                                         FrozenCase{"qwen2", "oracle/qwen2"},
                                         FrozenCase{"glm4", "oracle/glm4"},
                                         FrozenCase{"glm4_moe", "oracle/glm4_moe"},
                                         FrozenCase{"deepseek_v3", "oracle/deepseek_v3"}),
                         [](const auto& instance) { return instance.param.name; });

// The difference is the head's gradient products for all tokens.
TEST(FrozenWeights, AreNotCountedAsTrained) {
  GridRun run = small_run("oracle/qwen2");
  const std::vector<Sample> samples = samples_for("oracle/qwen2");
  const StepResult whole = run_on_grid(run, samples).steps[0];
  run.frozen = {"embed_tokens"};  // tied: also the head
  const StepResult frozen = run_on_grid(run, samples).steps[0];
  const model::ModelSpec spec =
      model::read_model_spec(io::HfFolder::open(run.folder).config(), run.folder);
  ASSERT_TRUE(spec.tied_embeddings);
  EXPECT_DOUBLE_EQ(whole.flops - frozen.flops, forward_flops(spec.head(), whole.num_tokens));
}

struct FrozenGrid {
  std::string name, folder;
  int world_size;
  dist::GridSizes sizes;
  std::vector<std::string> frozen, only;
};
void PrintTo(const FrozenGrid& c, std::ostream* out) { *out << c.name; }

class FrozenOnGrid : public testing::TestWithParam<FrozenGrid> {};

TEST_P(FrozenOnGrid, KeepsBytesAndTheOtherGradients) {
  const FrozenGrid& c = GetParam();
  GridRun run = small_run(c.folder);
  run.world_size = c.world_size;
  run.sizes = c.sizes;
  const std::vector<Sample> samples = samples_for(c.folder);
  const GridResult whole = run_on_grid(run, samples), start = without_steps(run, samples);
  run.frozen = c.frozen;
  run.only = c.only;
  const GridResult result = run_on_grid(run, samples);
  Names frozen;
  for (const auto& [name, values] : whole.gradients)
    if (!result.gradients.contains(name)) frozen.insert(name);
  EXPECT_GT(frozen.size(), 0u);
  expect_frozen(result, whole, start, frozen, c.name);
}

// In the second case the first stage has nothing to train, in the last case the second stage.
INSTANTIATE_TEST_SUITE_P(
    Grids, FrozenOnGrid,
    testing::Values(
        FrozenGrid{"dp2", "models/qwen3_tied_mqa", 2, {}, {"layernorm", "down_proj"}, {}},
        FrozenGrid{"pp2", "oracle/qwen2", 2, {.pp = 2}, {}, {"^model\\.norm"}},
        FrozenGrid{"tied_pp2", "models/qwen3_tied_mqa", 2, {.pp = 2}, {"embed_tokens"}, {}},
        FrozenGrid{"tp2", "oracle/glm4_moe", 2, {.tp = 2}, {"self_attn", "mlp\\.gate\\."}, {}},
        FrozenGrid{"tp4_copied_heads", "oracle/qwen2", 4, {.tp = 4}, {"[qkv]_proj.weight"}, {}},
        FrozenGrid{"ep2", "oracle/glm4_moe", 2, {.ep = 2}, {"mlp\\.experts"}, {}},
        FrozenGrid{"cp2", "oracle/deepseek_v3", 2, {.cp = 2}, {"kv_b_proj", "a_proj"}, {}},
        FrozenGrid{"no_stage_2", "oracle/qwen3", 2, {.pp = 2}, {}, {"embed_tokens"}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::train

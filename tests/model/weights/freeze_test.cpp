#include "slimexx/model/freeze.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/families.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "test_paths.h"

namespace slimexx::model {
namespace {

using Names = std::vector<std::string>;

ModelSpec frozen_spec(const std::string& folder, const Names& frozen, const Names& only = {}) {
  const std::string path = test_data_path("golden/" + folder);
  ModelSpec spec = read_model_spec(io::HfFolder::open_without_weights(path).config(), path);
  freeze_parameters(spec, frozen, only);
  return spec;
}

// Names of the frozen parameters.
Names frozen_in(const std::vector<ParameterInfo>& infos) {
  Names names;
  for (const ParameterInfo& info : infos) {
    if (info.frozen_by_name) names.push_back(info.name);
    EXPECT_FALSE(info.frozen_by_name && info.trainable) << info.name;
  }
  return names;
}
Names frozen_by(const std::string& folder, const Names& frozen, const Names& only = {}) {
  return frozen_in(list_parameters(frozen_spec(folder, frozen, only)));
}

constexpr const char* kDense = "models/qwen3_tied_mqa";
constexpr const char* kExperts = "oracle/glm_moe_dsa";

TEST(FreezeParameters, PatternsAreFoundAnywhereInANameOnDisk) {
  EXPECT_EQ(frozen_by(kDense, {"layers\\.1\\.self_attn\\.[qkv]_proj"}),
            Names{"layers.1.attention.qkv.weight"});
  EXPECT_EQ(frozen_by(kDense, {"^model\\.norm", "embed_tokens"}),
            (Names{"embedding.weight", "final_norm.weight"}));
  EXPECT_EQ(frozen_by(kDense, {"o_proj\\.weight$"}).size(), 2u);
}

TEST(FreezeParameters, OnlyTheNamedOnesAreTrained) {
  const ModelSpec spec = frozen_spec(kDense, {}, {"mlp\\.down_proj"});
  Names trained;
  for (const ParameterInfo& info : list_parameters(spec))
    if (info.trainable) trained.push_back(info.name);
  EXPECT_EQ(trained, (Names{"layers.0.mlp.down.weight", "layers.1.mlp.down.weight"}));
}

TEST(FreezeParameters, AStageFreezesItsOwn) {
  const ModelSpec spec = frozen_spec(kDense, {"down_proj", "embed_tokens"});
  const StageRange last{.first_layer = 1, .end_layer = 2, .has_embedding = false, .has_head = true};
  EXPECT_EQ(frozen_in(list_parameters(spec, last)),
            (Names{"embedding.weight", "layers.1.mlp.down.weight"}));  // embedding: the tied copy
}

// All experts are one parameter. Indexers and correction biases are frozen without a pattern.
TEST(FreezeParameters, ExpertsFreezeTogether) {
  const Names frozen = frozen_by(kExperts, {"mlp\\.experts\\.", "indexer", "mlp\\.gate\\."});
  EXPECT_FALSE(frozen.empty());
  for (const std::string& name : frozen)
    EXPECT_TRUE(name.find("experts") != std::string::npos ||
                name.find("router") != std::string::npos)
        << name;
  for (const std::string& name : frozen) EXPECT_EQ(name.find("bias"), std::string::npos) << name;
}

// If only norms are trained, all weight-gradient products are skipped. These products cost as much
// as the part of the forward that is linear in the tokens.
TEST(FrozenWeightFlops, AreThoseOfTheForward) {
  constexpr int64_t kTokens = 64;
  for (const std::string folder :
       {"models/qwen3_tied_mqa", "models/qwen2_untied", "oracle/glm4_moe", "oracle/deepseek_v3"}) {
    const ModelSpec spec = frozen_spec(folder, {}, {"norm"});
    const double linear = (4 * forward_flops(spec, kTokens) - forward_flops(spec, 2 * kTokens)) / 2;
    EXPECT_DOUBLE_EQ(frozen_weight_flops(spec, whole_model(spec), kTokens), linear) << folder;
  }
}

TEST(FrozenWeightFlops, AreThoseOfTheNamedOnesInTheStage) {
  const ModelSpec untied = frozen_spec("models/qwen2_untied", {"embed_tokens"});
  EXPECT_EQ(frozen_weight_flops(untied, whole_model(untied), 8), 0);
  const ModelSpec tied = frozen_spec(kDense, {"embed_tokens", "layers\\.0\\.mlp"});
  const double head = forward_flops(tied.head(), 8);
  const double mlp = forward_flops(std::get<DenseMlpSpec>(tied.layer(0).mlp), 8);
  EXPECT_DOUBLE_EQ(frozen_weight_flops(tied, whole_model(tied), 8), head + mlp);
  const StageRange first{.end_layer = 1, .has_head = false},
      last{.first_layer = 1, .end_layer = 2, .has_embedding = false};
  EXPECT_DOUBLE_EQ(frozen_weight_flops(tied, first, 8), mlp);
  EXPECT_DOUBLE_EQ(frozen_weight_flops(tied, last, 8), head);
}

void expect_fault(const Names& frozen, const Names& only, const Names& texts,
                  const std::string& folder = kDense) {
  try {
    frozen_spec(folder, frozen, only);
    ADD_FAILURE() << texts[0] << " was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    for (const std::string& text : texts)
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << text << " in " << e.what();
  }
}

TEST(FreezeParameters, Faults) {
  expect_fault({"embed", "mlp.don_proj"}, {},
               {"\"mlp.don_proj\" matches no tensor name", "model.layers.N.mlp.down_proj.weight",
                "train.freeze_params_name_list"});
  expect_fault({}, {"lm_head"}, {"\"lm_head\"", "train.only_train_params_name_list"});  // tied
  expect_fault({"q_proj"}, {},
               {"model.layers.0.self_attn.q_proj.weight matches", "_proj.weight does not",
                "layers.0.attention.qkv.weight"});
  expect_fault({"experts\\.0\\."}, {}, {"mlp.experts.0", "does not", "one matrix"}, kExperts);
  expect_fault({"["}, {}, {"\"[\" is not a regular expression"});
  // Patterns with exponential backtracking give an error at once.
  for (const char* pattern : {"(.*)*[!?]", "(\\w+\\.?)+[!?]", "(.|.)*[!?]",
                              ".*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*[!?]"})
    expect_fault({pattern}, {}, {"too many steps on the name"});
  expect_fault({"."}, {}, {"nothing is left to train"});
  expect_fault({}, {"indexer"},
               {"nothing is left to train: the matching tensors are never trained",
                "match tensors that can be trained"},
               kExperts);
  expect_fault({"indexer|\\..*"}, {"indexer"}, {"nothing is left to train", "match fewer"},
               kExperts);
}

}  // namespace
}  // namespace slimexx::model

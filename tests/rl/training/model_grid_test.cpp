#include "slimexx/rl/model_grid.h"

#include <gtest/gtest.h>

#include <string>

#include "model/random_model.h"
#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

// Eight experts with 16 columns each.
model::ModelSpec spec_of(const std::string& family) {
  return model::random_spec(family,
                            {.vocab_size = 320,
                             .hidden_size = 64,
                             .intermediate_size = 640,
                             .head_dim = 8,
                             .max_positions = 128,
                             .num_heads = 16},
                            0.25);
}

// "key: message; hint"
std::string refusal(const std::string& family, int num_ranks, const dist::GridSizes& sizes) {
  try {
    check_model_grid(spec_of(family), dist::GridShape(num_ranks, sizes), {.num_ranks = sizes.pp});
    return "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.where() + ": " + error.message() + "; " + error.hint();
  }
}

TEST(ModelGrid, SizesThatTheModelDividesBy) {
  EXPECT_EQ(refusal("qwen3", 4, {.tp = 2, .etp = 2}), "accepted");
  EXPECT_EQ(refusal("glm4_moe", 8, {.tp = 2, .ep = 4}), "accepted");
}

// Proposed sizes divide the number of ranks too: 2 and 4 would only suit the model.
TEST(ModelGrid, ProposesSizesThatTheRanksAllow) {
  EXPECT_EQ(
      refusal("glm4_moe", 3, {.ep = 3}),
      "parallel.expert_model_parallel_size: 8 experts are not divisible by 3 ranks: 8 % 3 = 2; "
      "set it to 1");
  EXPECT_EQ(
      refusal("glm4_moe", 6, {.ep = 3}),
      "parallel.expert_model_parallel_size: 8 experts are not divisible by 3 ranks: 8 % 3 = 2; "
      "set it to 2");
  EXPECT_EQ(refusal("qwen3", 6, {.tp = 6, .etp = 6}),
            "parallel.tensor_model_parallel_size: num_attention_heads 16 % "
            "tensor_model_parallel_size 6 = 4: tensor-parallel ranks hold equal shards; "
            "set it to 2");
}

TEST(ModelGrid, ADenseModelHasNoExpertsToShare) {
  EXPECT_EQ(refusal("qwen3", 4, {.tp = 2, .ep = 2}),
            "parallel.expert_model_parallel_size: is 2, but the model has no experts; set it to 1");
}

}  // namespace
}  // namespace slimexx::rl

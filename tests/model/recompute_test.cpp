// Recomputed activations have the bits of kept ones, on the CPU; transformer_cuda_test.cpp tests
// devices.
#include <gtest/gtest.h>

#include "model/model_passes.h"

namespace slimexx::model {
namespace {

class RecomputeTest : public testing::TestWithParam<std::string> {};

TEST_P(RecomputeTest, ChangesNoBit) {
  const ModelSpec spec = device_spec(GetParam(), 0.08);
  const Sequences s = make_sequences({37, 2, 70}, spec.vocab_size, 3);
  RandomModel model(spec, {}, true);
  const Outcome kept = Pass(model, s, kKeepAll, true).run();
  for (size_t i = 0; i < kept.gradients.size(); ++i) {
    if (!model.store.infos()[i].trainable) continue;
    const std::vector<float> zero(kept.gradients[i].size());
    EXPECT_NE(first_difference(kept.gradients[i], zero), "") << model.store.infos()[i].name;
  }
  for (const KeepPlan& keep : all_keep_plans()) {
    const std::string plan = " at level " + std::to_string(static_cast<int>(keep.level)) + ", " +
                             std::to_string(keep.num_raised) + " raised";
    const Outcome again = Pass(model, s, keep, true).run();
    EXPECT_EQ(first_difference(again.log_probs, kept.log_probs), "") << plan;
    EXPECT_EQ(first_difference(again.entropies, kept.entropies), "") << plan;
    for (size_t i = 0; i < kept.gradients.size(); ++i)
      EXPECT_EQ(first_difference(again.gradients[i], kept.gradients[i]), "")
          << model.store.infos()[i].name << plan;
  }
}

// The budget alone decides what is kept: a larger budget never keeps less, 0 keeps the minimum, and
// the plan fits.
TEST_P(RecomputeTest, BytesDecideWhatIsKept) {
  const ModelSpec spec = device_spec(GetParam(), 0.08);
  constexpr int64_t kTokens = 100;
  const auto total = [&](const KeepPlan& plan) {
    int64_t bytes = 0;
    for (int64_t layer = 0; layer < spec.num_layers(); ++layer)
      bytes += layer_tape_bytes(spec, layer, {}, kTokens, plan.of(layer));
    return bytes;
  };
  const int64_t least = total({.level = LayerKeep::kInputs}), most = total(kKeepAll);
  ASSERT_LT(least, most);
  int64_t last = least;
  std::vector<KeepPlan> seen;
  for (int64_t bytes = 0; bytes <= most - least; bytes += 1024) {
    const KeepPlan plan = choose_keep(spec, whole_model(spec), {}, kTokens, bytes);
    EXPECT_LE(total(plan) - least, bytes);
    EXPECT_GE(total(plan), last);
    last = total(plan);
    if (seen.empty() || !(plan == seen.back())) seen.push_back(plan);
  }
  EXPECT_EQ(choose_keep(spec, whole_model(spec), {}, kTokens, most - least), kKeepAll);
  EXPECT_GE(seen.size(), static_cast<size_t>(2 * spec.num_layers()));
}

TEST_P(RecomputeTest, LogitsMadeAgainChangeNoBit) {
  const ModelSpec spec = device_spec(GetParam(), 0.08);
  const Sequences s = make_sequences({37, 2, 70}, spec.vocab_size, 3);
  const auto num_rows = static_cast<int64_t>(s.rows.size());
  RandomModel model(spec, {}, true);
  Pass keeping(model, s, kKeepAll, true), forgetting = keeping, chunked = keeping;
  const Outcome kept = keeping.with_chunks(num_rows).run();
  const Outcome again = forgetting.with_chunks(num_rows).forgetting_logits().run();
  const Outcome parts = chunked.with_chunks(num_rows - 1).run();
  EXPECT_TRUE(keeping.has_kept_logits());
  EXPECT_FALSE(chunked.has_kept_logits());
  for (const Outcome* other : {&again, &parts}) {
    EXPECT_EQ(first_difference(other->log_probs, kept.log_probs), "");
    EXPECT_EQ(first_difference(other->entropies, kept.entropies), "");
  }
  for (size_t i = 0; i < kept.gradients.size(); ++i) {
    if (!model.store.infos()[i].trainable) continue;
    EXPECT_EQ(first_difference(again.gradients[i], kept.gradients[i]), "")
        << model.store.infos()[i].name;
    EXPECT_LT(relative_distance(parts.gradients[i], kept.gradients[i]), 1e-5)
        << model.store.infos()[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RecomputeTest, testing::ValuesIn(all_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::model

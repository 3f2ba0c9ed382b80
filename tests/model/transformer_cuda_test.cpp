// Tests whole models of every family: compares bf16 on the device with f32 on the CPU for the same
// weights, and checks that packing and recomputation change no bits.
#include <gtest/gtest.h>

#include <cstdio>

#include "model/model_passes.h"
#include "slimexx/ops/log_prob.h"

namespace slimexx::model {
namespace {

// Per-tensor bounds for bf16 against f32 activations, over two layers.
constexpr double kLogProbBound = 5e-3;
constexpr double kGradientBound = 3e-2;

class TransformerCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
    tensor::select_device(test_device());
  }
  const ModelSpec spec_ = device_spec(GetParam(), 0.08);
  const Sequences s_ = make_sequences({37, 2, 70, 131}, spec_.vocab_size, 3);
};

TEST_P(TransformerCuda, LogProbsAndGradientsAgreeWithTheCpu) {
  const ModelSpec spec = without_choices(spec_);
  RandomModel cpu(spec, {}, true), device(spec, test_device(), true);
  const Outcome expected = Pass(cpu, s_, kKeepAll, true).run();
  const Outcome got = Pass(device, s_, kKeepAll, true).run();
  const double log_probs = relative_distance(got.log_probs, expected.log_probs);
  EXPECT_LT(log_probs, kLogProbBound) << "seed 3";
  EXPECT_LT(relative_distance(got.entropies, expected.entropies), kLogProbBound) << "seed 3";
  double largest = 0;
  std::string where;
  const auto& infos = cpu.store.infos();
  ASSERT_EQ(got.gradients.size(), infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const double distance = relative_distance(got.gradients[i], expected.gradients[i]);
    EXPECT_LT(distance, kGradientBound) << infos[i].name << ", seed 3";
    if (!(distance <= largest)) largest = distance, where = infos[i].name;
  }
  std::printf("%s: log-probs differ by %.2e of their norm, gradients by at most %.2e (%s)\n",
              GetParam().c_str(), log_probs, largest, where.c_str());
}

TEST_P(TransformerCuda, RecomputationAndRunsChangeNoBit) {
  RandomModel device(spec_, test_device(), true);
  const Outcome kept = Pass(device, s_, kKeepAll, true).run();
  for (const KeepPlan& keep : all_keep_plans()) {
    const Outcome again = Pass(device, s_, keep, true).run();
    EXPECT_EQ(first_difference(again.log_probs, kept.log_probs), "");
    EXPECT_EQ(first_difference(again.entropies, kept.entropies), "");
    for (size_t i = 0; i < kept.gradients.size(); ++i)
      EXPECT_EQ(first_difference(again.gradients[i], kept.gradients[i]), "")
          << device.store.infos()[i].name;
  }
}

// The logit gradients have equal bits (log_prob_cuda_test.cpp), but their products with hidden
// states and weights may use other algorithms because the row stride differs.
TEST_P(TransformerCuda, KeptLogitsGiveWhatLogitsMadeAgainGive) {
  RandomModel device(spec_, test_device(), true);
  const auto num_rows = static_cast<int64_t>(s_.rows.size());
  Pass keeping(device, s_, kKeepAll, true), forgetting = keeping, repeated = keeping;
  const Outcome kept = keeping.with_chunks(num_rows).run();
  const Outcome again = forgetting.with_chunks(num_rows).forgetting_logits().run();
  const Outcome twice = repeated.with_chunks(num_rows).run();
  EXPECT_EQ(keeping.has_kept_logits(), ops::can_keep_logits(device.weights.head.lm_head));
  EXPECT_EQ(first_difference(again.log_probs, kept.log_probs), "");
  EXPECT_EQ(first_difference(again.entropies, kept.entropies), "");
  for (size_t i = 0; i < kept.gradients.size(); ++i) {
    const std::string& name = device.store.infos()[i].name;
    EXPECT_EQ(first_difference(twice.gradients[i], kept.gradients[i]), "") << name;
    EXPECT_LT(relative_distance(again.gradients[i], kept.gradients[i]), kGradientBound) << name;
  }
}

TEST_P(TransformerCuda, PackingChangesNoBit) {
  RandomModel device(spec_, test_device(), false);
  const Outcome all = Pass(device, s_, kKeepAll, false).run();
  size_t at = 0;
  for (size_t b = 0; b + 1 < s_.cu.size(); ++b) {
    const Sequences own = only(s_, b);
    const Outcome one = Pass(device, own, kKeepAll, false).run();
    const auto part = [&](const std::vector<float>& x) {
      const auto first = x.begin() + static_cast<int64_t>(at);
      return std::vector<float>(first, first + static_cast<int64_t>(own.rows.size()));
    };
    EXPECT_EQ(first_difference(one.log_probs, part(all.log_probs)), "") << "sequence " << b;
    EXPECT_EQ(first_difference(one.entropies, part(all.entropies)), "") << "sequence " << b;
    at += own.rows.size();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerCuda, testing::ValuesIn(device_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::model

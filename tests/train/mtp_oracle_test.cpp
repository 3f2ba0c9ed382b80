// Compares MTP layers with PyTorch: logits, loss and gradients.
#include <gtest/gtest.h>

#include <filesystem>

#include "slimexx/ops/norm.h"
#include "train/oracle.h"
#include "train/passes/mtp_pass.h"

namespace slimexx::train {
namespace {

class MtpOracle : public testing::TestWithParam<std::string> {
 protected:
  Oracle oracle_{test_data_path("golden/oracle/") + GetParam(), true};
};

TEST_P(MtpOracle, Logits) {
  const std::vector<float> expected = read_floats(oracle_.file, "mtp.logits");
  std::vector<Sample> samples;
  std::vector<int64_t> all;
  std::vector<int32_t> rows;  // the last token of a row has no next one
  for (int64_t b = 0; b < oracle_.batch; ++b) {
    samples.push_back(oracle_.sample(b, 1, oracle_.length));
    all.push_back(b);
    for (int64_t t = 0; t + 1 < oracle_.length; ++t)
      rows.push_back(static_cast<int32_t>(b * oracle_.length + t));
  }
  tensor::Arena arena({}, int64_t{64} << 20, "test");
  const ops::Context ctx = ops::compute_context(arena);
  const model::ModelParameters weights = model::bind_weights(oracle_.store, oracle_.spec);
  const model::HeadOptions head;
  InFlight f;
  const Pass pass{oracle_.decoder, weights, head, ctx};
  start_microbatch(pass, samples, all, f);
  run_layers(pass, f, false);
  const tensor::Tensor x = f.output;
  const auto eps = static_cast<float>(oracle_.spec.rms_norm_eps);
  ops::rms_norm_forward(ctx, x, x, weights.head.final_norm, eps);
  MtpLabels labels = list_mtp_labels(samples, all, 0);
  model::Batch batch = f.microbatch.batch;
  batch.tokens =
      tensor::Tensor(labels.tokens.data(), tensor::DType::kI32, {}, {std::ssize(labels.tokens)});
  model::MtpTape tape;
  const tensor::Tensor y = model::mtp_forward(ctx, oracle_.decoder, weights, 0, batch, x, tape);
  const tensor::Tensor logits = model::head_logits(
      ctx, oracle_.spec.head(), {weights.mtp[0].final_norm, weights.head.lm_head}, y,
      tensor::Tensor(rows.data(), tensor::DType::kI32, {}, {std::ssize(rows)}));
  ASSERT_EQ(logits.num_elements(), std::ssize(expected));
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(logits.f32()[i], expected[i], kLogProbTolerance) << i;
}

// Gradients before clipping, without a weight on the loss.
TEST_P(MtpOracle, LossAndGradients) {
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  loss.per_token_loss = true;
  const double expected = read_floats(oracle_.file, "mtp.loss")[0];
  for (const int64_t tokens : {4096, 1}) {
    TrainOptions options;
    options.max_tokens_per_gpu = tokens;
    options.max_logits_gib = tokens == 1 ? 1e-6 : 0.25;
    options.mtp_loss_scaling_factor = 1;
    const StepResult result = oracle_.trainer(options).step(oracle_.masked_samples(), loss, 0);
    ASSERT_EQ(result.mtp_losses.size(), 1u);
    EXPECT_NEAR(result.mtp_losses[0], expected, 1e-4);
    EXPECT_NEAR(result.metric(ops::LossMetric::kLoss), read_floats(oracle_.file, "sft.loss")[0],
                1e-4);
    oracle_.expect_gradients("mtp.grad.", true);
    oracle_.expect_gradients("sft.grad.");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, MtpOracle,
                         testing::Values("glm4_moe", "glm4_moe_lite", "deepseek_v3", "glm_moe_dsa"),
                         [](const auto& instance) { return instance.param; });

}  // namespace
}  // namespace slimexx::train

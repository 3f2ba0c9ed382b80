#include "slimexx/ops/policy_loss.h"

#include <cmath>
#include <vector>

#include "ops/policy_loss/policy_loss_problem.h"

namespace slimexx::ops::testing {
namespace {

// One sample of one token with this ratio to the old policy and this advantage.
LossProblem one_token(double ratio, double advantage) {
  return {.cu_rows = {0, 1},
          .log_probs = {-1 + std::log(ratio)},
          .entropies = {},
          .old_log_probs = {-1},
          .ref_log_probs = {},
          .rollout_log_probs = {},
          .advantages = {advantage},
          .mask = {1},
          .weights = {1}};
}

TEST(PolicyLoss, ClipByHand) {
  struct Row {
    double ratio, advantage, loss, derivative;
    double low, high;  // clip fractions
  };
  // eps_clip 0.2, eps_clip_high 0.28, dual clip at 3.
  const std::vector<Row> table = {
      {1.0, 2, -2, -2, 0, 0},     {1.2, 1, -1.2, -1.2, 0, 0},  // inside
      {1.5, 1, -1.28, 0, 0, 1},                                // max(-1.5, -1.28): clipped
      {1.5, -1, 1.5, 1.5, 0, 0},   // max(1.5, 1.28): not clipped, advantage < 0
      {0.5, 1, -0.5, -0.5, 0, 0},  // max(-0.5, -0.8)
      {0.5, -1, 0.8, 0, 1, 0},     // max(0.5, 0.8): clipped
      {2.5, -2, 5.0, 5.0, 0, 0},   // below the dual clip, 3 * 2
      {4.0, -2, 6.0, 0, 0, 0},     // max(8, 2.56) = 8, bounded to 6
      {4.0, 2, -2.56, 0, 0, 1},    // the dual clip only applies to negative advantages
      {0.01, -2, 1.6, 0, 1, 0},
  };
  for (const Row& row : table) {
    const LossOutcome out =
        run_policy_loss(one_token(row.ratio, row.advantage),
                        {.eps_clip = 0.2f, .eps_clip_high = 0.28f, .eps_clip_c = 3.0f});
    SCOPED_TRACE(::testing::Message() << "ratio " << row.ratio << " advantage " << row.advantage);
    EXPECT_NEAR(out.metric(LossMetric::kLoss), row.loss, 2e-6);
    EXPECT_NEAR(out.metric(LossMetric::kPgLoss), row.loss, 2e-6);
    EXPECT_NEAR(out.dlog_probs[0], row.derivative, 2e-6);
    EXPECT_EQ(out.metric(LossMetric::kClipFractionLow), row.low);
    EXPECT_EQ(out.metric(LossMetric::kClipFractionHigh), row.high);
    EXPECT_EQ(out.metric(LossMetric::kClipFraction), row.low + row.high);
    EXPECT_NEAR(out.metric(LossMetric::kRatio), row.ratio, 2e-6);
    EXPECT_NEAR(out.metric(LossMetric::kPpoKl), -std::log(row.ratio), 2e-6);
  }
  // Without the dual clip the loss at ratio 4 stays 8.
  EXPECT_NEAR(run_policy_loss(one_token(4.0, -2), {}).metric(LossMetric::kLoss), 8, 1e-5);
}

TEST(PolicyLoss, CispoByHand) {
  // CISPO: -clip(r) A log p, where the clipped ratio has no gradient: 1.5 -> 1.28, 0.5 -> 0.8, 1.1
  // stays.
  for (const auto& [ratio, clipped] : {std::pair{1.5, 1.28}, {0.5, 0.8}, {1.1, 1.1}}) {
    for (const double advantage : {2.0, -3.0}) {
      const LossProblem p = one_token(ratio, advantage);
      const LossOutcome out =
          run_policy_loss(p, {.kind = LossKind::kCispo, .eps_clip = 0.2f, .eps_clip_high = 0.28f});
      EXPECT_NEAR(out.metric(LossMetric::kLoss), -clipped * advantage * p.log_probs[0], 1e-5);
      EXPECT_NEAR(out.dlog_probs[0], -clipped * advantage, 1e-5);
      EXPECT_EQ(out.metric(LossMetric::kClipFraction), clipped == ratio ? 0 : 1);
    }
  }
}

TEST(PolicyLoss, GspoByHand) {
  // One sample: log-ratios ln 2 and ln 0.5 have mean 0, so the sequence's ratio is 1 and both
  // losses are -A. The masked third token (log-ratio 5) is ignored. d loss / d mean = -(0.5 + 0.5),
  // and each token moves the mean by 1/2.
  LossProblem p{.cu_rows = {0, 3},
                .log_probs = {-1 + std::log(2), -1 + std::log(0.5), 4},
                .entropies = {},
                .old_log_probs = {-1, -1, -1},
                .ref_log_probs = {},
                .rollout_log_probs = {},
                .advantages = {1, 1, 1},
                .mask = {1, 1, 0},
                .weights = {0.5, 0.5, 0}};
  LossOutcome out = run_policy_loss(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.metric(LossMetric::kLoss), -1, 1e-6);
  EXPECT_NEAR(out.dlog_probs[0], -0.5, 1e-6);
  EXPECT_NEAR(out.dlog_probs[1], -0.5, 1e-6);
  EXPECT_EQ(out.dlog_probs[2], 0);
  // With unequal advantages the derivative with respect to the mean, -(0.5 * 1 + 0.5 * 5), is still
  // shared equally.
  p.advantages = {1, 5, 1};
  out = run_policy_loss(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.dlog_probs[0], -1.5, 1e-6);
  EXPECT_NEAR(out.dlog_probs[1], -1.5, 1e-6);
  // Ratios exp((ln 2 + ln 4) / 2) = sqrt 8: clipped at 1.2, so no gradient.
  p.advantages = {1, 1, 1};
  p.log_probs = {-1 + std::log(2), -1 + std::log(4), 4};
  out = run_policy_loss(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.metric(LossMetric::kLoss), -1.2, 1e-6);
  EXPECT_EQ(out.dlog_probs[0], 0);
  EXPECT_NEAR(out.metric(LossMetric::kRatio), std::sqrt(8.0), 1e-5);
}

// Two samples of two tokens, whose probabilities have halved and doubled: the mean of log p_old -
// log p is ln 2 and -ln 2. Masks only one token: the one with a negative advantage in the first
// sample.
TEST(PolicyLoss, OffPolicySequenceMaskingByHand) {
  const double ln2 = std::log(2);
  LossProblem p{.cu_rows = {0, 2, 5},
                .log_probs = {-1 - ln2, -1 - ln2, -1 + ln2, -1 + ln2, 7},
                .entropies = {},
                .old_log_probs = {-1, -1, -1, -1, -1},
                .ref_log_probs = {},
                .rollout_log_probs = {},
                .advantages = {-1, 1, -1, 1, -1},
                .mask = {1, 1, 1, 1, 0},
                .weights = {0.25, 0.25, 0.25, 0.25, 0}};
  PolicyLossOptions o{.eps_clip = 0.9f, .eps_clip_high = 9};
  const LossOutcome plain = run_policy_loss(p, o);
  EXPECT_NEAR(plain.metric(LossMetric::kLoss), 0.25 * (0.5 - 0.5 + 2 - 2), 1e-6);
  o.use_opsm = true;
  o.opsm_delta = 0.6f;
  LossOutcome out = run_policy_loss(p, o);
  EXPECT_NEAR(out.metric(LossMetric::kLoss), 0.25 * (0 - 0.5 + 2 - 2), 1e-6);
  EXPECT_EQ(out.metric(LossMetric::kOpsmClipFraction), 0.25);
  EXPECT_EQ(out.dlog_probs[0], 0);
  for (size_t r = 1; r < 5; ++r) EXPECT_EQ(out.dlog_probs[r], plain.dlog_probs[r]) << r;
  // KL and entropy still count for a masked token.
  p.ref_log_probs = p.old_log_probs;
  o.use_kl = true;
  o.kl_kind = KlKind::kK1;
  o.kl_coef = 0.5f;
  EXPECT_NEAR(run_policy_loss(p, o).dlog_probs[0], 0.25 * 0.5, 1e-6);
  o.use_kl = false;
  // No token is masked if the drift is below opsm_delta, or if the policy is the old policy.
  o.opsm_delta = 0.7f;
  EXPECT_EQ(run_policy_loss(p, o).metric(LossMetric::kOpsmClipFraction), 0);
  o.opsm_delta = 0;
  p.old_log_probs.clear();
  EXPECT_EQ(run_policy_loss(p, o).metric(LossMetric::kOpsmClipFraction), 0);
  // GSPO: the first token is masked here too, so only the second token's loss depends on the
  // sequence's ratio 1/2. The ratio depends on the log-probs of both tokens equally.
  p.old_log_probs = {-1, -1, -1, -1, -1};
  o.kind = LossKind::kGspo;
  out = run_policy_loss(p, o);
  EXPECT_NEAR(out.dlog_probs[0], 0.25 * -0.5 / 2, 1e-6);
  EXPECT_NEAR(out.dlog_probs[1], 0.25 * -0.5 / 2, 1e-6);
}

TEST(PolicyLoss, KlByHand) {
  struct Row {
    KlKind kind;
    double d, value, derivative;
  };
  const std::vector<Row> table = {
      {KlKind::kK1, 0.5, 0.5, 1},
      {KlKind::kK1, -3, -3, 1},
      {KlKind::kK2, 0.5, 0.125, 0.5},
      {KlKind::kK2, -3, 4.5, -3},
      {KlKind::kK3, 0.5, std::exp(-0.5) - 0.5, 1 - std::exp(-0.5)},
      {KlKind::kK3, -4, std::exp(4) - 5, 1 - std::exp(4)},  // 49.6
      {KlKind::kLowVar, 0.5, std::exp(-0.5) - 0.5, 1 - std::exp(-0.5)},
      {KlKind::kLowVar, -4, 10, 0},    // clamped
      {KlKind::kLowVar, -200, 10, 0},  // exp overflows
      {KlKind::kLowVar, 12, 10, 0},    // exp(-12) + 11
      // Near 0 both are d^2/2 and d; a naive exp(-d) - 1 + d has no digit left here.
      {KlKind::kK3, 1e-3, 0.5e-6 - 1e-9 / 6, 1e-3 - 0.5e-6},
      {KlKind::kLowVar, -1e-5, 0.5e-10, -1e-5},
  };
  for (const Row& row : table) {
    const KlValue kl = estimate_kl(row.kind, static_cast<float>(row.d));
    const double rounding = std::abs(row.d) * 1.2e-7;  // rounding errors of expm1(-d) and of d
    EXPECT_NEAR(kl.value, row.value, 1e-6 * std::abs(row.value) + rounding) << row.d;
    EXPECT_NEAR(kl.derivative, row.derivative, 1e-5 * std::abs(row.derivative)) << row.d;
  }
  EXPECT_EQ(estimate_kl(KlKind::kK3, 0).value, 0);
  EXPECT_EQ(estimate_kl(KlKind::kLowVar, 0).derivative, 0);
  // The unbiased estimate is multiplied by the ratio: k1 at d = 0.5 and ratio 2 gives 0.5 * 2 = 1;
  // d/dlogp = (1 + 0.5) * 2.
  EXPECT_FLOAT_EQ(kernels::estimate_kl(KlKind::kK1, 0.5f, true, 2).value, 1);
  EXPECT_FLOAT_EQ(kernels::estimate_kl(KlKind::kK1, 0.5f, true, 2).derivative, 3);
  // low_var is clamped after the ratio: 49.6 * 0.1 is below 10, 2.7 * 100 is not.
  EXPECT_NEAR(kernels::estimate_kl(KlKind::kLowVar, -4, true, 0.1f).value, 4.959815, 1e-5);
  EXPECT_NEAR(kernels::estimate_kl(KlKind::kLowVar, -4, true, 0.1f).derivative,
              0.1 * (1 - std::exp(4) + std::exp(4) - 5), 1e-5);
  EXPECT_EQ(kernels::estimate_kl(KlKind::kLowVar, -2, true, 100).value, 10);
  EXPECT_EQ(kernels::estimate_kl(KlKind::kLowVar, -2, true, 100).derivative, 0);
  EXPECT_EQ(kernels::estimate_kl(KlKind::kLowVar, -200, true, 0).value, 10);  // Inf * 0
}

TEST(PolicyLoss, ImportanceSamplingByHand) {
  // The loss is -1 before the importance weight, which is limited to [0.5, 2].
  struct Row {
    double raw, truncated, masked, clipped;
  };
  for (const Row& row : {Row{1.5, 1.5, 1.5, 0}, {3, 2, 0, 1}, {0.25, 0.5, 0, 1}}) {
    LossProblem p = one_token(1, 1);
    p.rollout_log_probs = {-1 - std::log(row.raw)};
    PolicyLossOptions o{.tis = TisMode::kTruncate, .tis_clip = 2, .tis_clip_low = 0.5f};
    const LossOutcome truncated = run_policy_loss(p, o);
    EXPECT_NEAR(truncated.metric(LossMetric::kPgLoss), -row.truncated, 1e-6);
    EXPECT_NEAR(truncated.dlog_probs[0], -row.truncated, 1e-6);
    EXPECT_NEAR(truncated.metric(LossMetric::kTis), row.raw, 1e-6);
    EXPECT_NEAR(truncated.metric(LossMetric::kTisAbs), std::abs(row.raw - 1), 1e-6);
    EXPECT_EQ(truncated.metric(LossMetric::kTisClipFraction), row.clipped);
    o.tis = TisMode::kMask;
    const LossOutcome masked = run_policy_loss(p, o);
    EXPECT_NEAR(masked.metric(LossMetric::kPgLoss), -row.masked, 1e-6);
    EXPECT_NEAR(masked.dlog_probs[0], -row.masked, 1e-6);
    o.tis = TisMode::kOff;
    EXPECT_NEAR(run_policy_loss(p, o).metric(LossMetric::kPgLoss), -1, 1e-6);
    // Without old log-probs the weight is the ratio of the current policy to the engine.
    p.old_log_probs.clear();
    o.tis = TisMode::kTruncate;
    EXPECT_NEAR(run_policy_loss(p, o).metric(LossMetric::kPgLoss), -row.truncated, 1e-6);
  }
}

TEST(PolicyLoss, EntropyAndRolloutDifference) {
  LossProblem p = one_token(1, 2);
  p.entropies = {3};
  p.rollout_log_probs = {-1.25};
  p.weights = {0.5};
  const LossOutcome out = run_policy_loss(p, {.entropy_coef = 0.25f});
  EXPECT_EQ(out.metric(LossMetric::kPgLoss), -1);
  EXPECT_EQ(out.metric(LossMetric::kEntropy), 1.5);
  EXPECT_EQ(out.metric(LossMetric::kLoss), -1 - 0.25 * 1.5);
  EXPECT_EQ(out.dentropies[0], -0.125);
  EXPECT_EQ(out.metric(LossMetric::kLogProbAbsDiff), 0.125);
  EXPECT_EQ(out.metric(LossMetric::kLogProbMaxDiff), 0.25);
  EXPECT_EQ(out.metric(LossMetric::kLogProbMismatches), 1);
  EXPECT_EQ(out.metric(LossMetric::kComparedTokens), 1);
  EXPECT_EQ(out.metric(LossMetric::kTokens), 1);
}

// Masked tokens that were sampled (compare_masked) count in the comparison metrics and nowhere
// else.
TEST(PolicyLoss, MaskedTokensAreComparedAndTrainNothing) {
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo, LossKind::kCispo}) {
    LossProblem p{.cu_rows = {0, 4, 6},
                  .log_probs = {-1, -2, -3, -4, -1, -2},
                  .entropies = {1, 2, 3, 4, 5, 6},
                  .old_log_probs = {-1.5, -2, -3, -4, -1, -2},
                  .ref_log_probs = {},
                  .rollout_log_probs = {-1, -2.5, -3, -6, -1, -1.75},
                  .advantages = {1, 1, 1, 1, -1, -1},
                  .mask = {1, 1, 0, 0, 0, 0},
                  .weights = {0.5, 0.5, 0, 0, 0, 0}};
    const PolicyLossOptions options{.kind = kind, .entropy_coef = 0.25f, .use_opsm = true};
    const LossOutcome trained = run_policy_loss(p, options);
    EXPECT_EQ(trained.metric(LossMetric::kComparedTokens), 2);
    EXPECT_EQ(trained.metric(LossMetric::kLogProbMismatches), 1);
    EXPECT_EQ(trained.metric(LossMetric::kLogProbMaxDiff), 0.5);
    PolicyLossOptions with_masked = options;
    with_masked.compare_masked = true;
    const LossOutcome all = run_policy_loss(p, with_masked);
    EXPECT_EQ(all.metric(LossMetric::kComparedTokens), 6);
    EXPECT_EQ(all.metric(LossMetric::kLogProbMismatches), 3);
    EXPECT_EQ(all.metric(LossMetric::kLogProbMaxDiff), 2);
    EXPECT_EQ(all.dlog_probs, trained.dlog_probs);
    EXPECT_EQ(all.dentropies, trained.dentropies);
    for (auto m = 0; m < static_cast<int>(LossMetric::kLogProbMaxDiff); ++m)
      EXPECT_EQ(all.metric(static_cast<LossMetric>(m)), trained.metric(static_cast<LossMetric>(m)))
          << m;
    EXPECT_EQ(all.metric(LossMetric::kTokens), 2);
    p.rollout_log_probs.clear();
    EXPECT_EQ(run_policy_loss(p, with_masked).metric(LossMetric::kComparedTokens), 0);
  }
}

// Without old log-probs the current ones take their place: the ratio is exactly 1, with the
// gradient of -A log p.
TEST(PolicyLoss, RatioIsExactlyOneWithoutOldLogProbs) {
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo, LossKind::kCispo}) {
    LossProblem p = one_token(1.7, 3);
    p.old_log_probs.clear();
    const LossOutcome out = run_policy_loss(p, {.kind = kind});
    EXPECT_EQ(out.metric(LossMetric::kRatio), 1);
    EXPECT_EQ(out.metric(LossMetric::kPpoKl), 0);
    EXPECT_EQ(out.metric(LossMetric::kClipFraction), 0);
    EXPECT_EQ(out.dlog_probs[0], -3);
  }
}

// Four samples of eight tokens with losses 1..8 times 10^k: mean of the samples' means
// (4.5 + 45 + 450 + 4500) / 4 = 1249.875, in one microbatch or in four.
TEST(PolicyLoss, AggregationByHand) {
  LossProblem all{.cu_rows = {0},
                  .log_probs = {},
                  .entropies = {},
                  .old_log_probs = {},
                  .ref_log_probs = {},
                  .rollout_log_probs = {},
                  .advantages = {},
                  .mask = {},
                  .weights = {}};
  LossOutcome by_sample;
  const PolicyLossOptions sft{.kind = LossKind::kSft};
  for (int k = 0; k < 4; ++k) {
    LossProblem one = all;
    one.cu_rows = {0, 8};
    one.log_probs = one.mask = one.weights = {};
    for (int x = 1; x <= 8; ++x) {
      one.log_probs.push_back(-x * std::pow(10, k));
      one.mask.push_back(1);
      one.weights.push_back(1.0 / 32);
    }
    by_sample = run_policy_loss(one, sft, std::move(by_sample));
    all.log_probs.insert(all.log_probs.end(), one.log_probs.begin(), one.log_probs.end());
    all.mask.resize(all.log_probs.size(), 1);
    all.weights.resize(all.log_probs.size(), 1.0 / 32);
    all.cu_rows.push_back(static_cast<int32_t>(all.log_probs.size()));
  }
  const LossOutcome at_once = run_policy_loss(all, sft);
  EXPECT_EQ(at_once.metric(LossMetric::kLoss), 1249.875);
  EXPECT_EQ(by_sample.metric(LossMetric::kLoss), 1249.875);
  for (const double d : at_once.dlog_probs) EXPECT_EQ(d, -1.0 / 32);
}

}  // namespace
}  // namespace slimexx::ops::testing

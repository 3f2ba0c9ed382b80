#include "slimexx/ops/policy_loss.h"

#include "cpu_context.h"
#include "ops/option_cases.h"
#include "ops/testing.h"
#include "slimexx/kernels/token_loss.h"

namespace slimexx::ops::testing {
namespace {

// One microbatch in doubles, every number of it exact in f32. Empty vectors are absent tensors.
struct Problem {
  std::vector<int32_t> cu_rows;
  std::vector<double> log_probs, entropies, old_log_probs, ref_log_probs, rollout_log_probs,
      advantages, mask, weights;
};

struct Outcome {
  std::vector<double> dlog_probs, dentropies;
  std::vector<double> metrics = std::vector<double>(kNumLossMetrics);
  double metric(LossMetric m) const { return metrics[static_cast<size_t>(m)]; }
};

Array to_array(const std::vector<double>& values) {
  Array a({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    a[static_cast<int64_t>(i)] = static_cast<float>(values[i]);
  return a;
}

Outcome run(const Problem& p, const PolicyLossOptions& options, Outcome out = {}) {
  const auto n = static_cast<int64_t>(p.log_probs.size());
  std::vector<Array> keep;
  const auto tensor_of = [&](const std::vector<double>& values) {
    if (values.empty()) return Tensor();
    return keep.emplace_back(to_array(values)).view();
  };
  Array dlog_probs({n}), dentropies({n});
  dlog_probs.fill(123), dentropies.fill(123);  // must be overwritten
  const PolicyLossRows rows{.log_probs = tensor_of(p.log_probs),
                            .entropies = tensor_of(p.entropies),
                            .old_log_probs = tensor_of(p.old_log_probs),
                            .ref_log_probs = tensor_of(p.ref_log_probs),
                            .rollout_log_probs = tensor_of(p.rollout_log_probs),
                            .advantages = tensor_of(p.advantages),
                            .mask = tensor_of(p.mask),
                            .weights = tensor_of(p.weights),
                            .cu_rows = p.cu_rows};
  const Tensor metrics(out.metrics.data(), DType::kF64, {}, {kNumLossMetrics});
  policy_loss(cpu_context(), dlog_probs, options.entropy_coef != 0 ? dentropies.view() : Tensor(),
              metrics, rows, options);
  out.dlog_probs = doubles(dlog_probs);
  out.dentropies = doubles(dentropies);
  return out;
}

// One sample of one token: log-ratio to the old policy, advantage.
Problem one_token(double ratio, double advantage) {
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
      {1.5, -1, 1.5, 1.5, 0, 0},   // max(1.5, 1.28): a bad token's ratio is pushed back
      {0.5, 1, -0.5, -0.5, 0, 0},  // max(-0.5, -0.8)
      {0.5, -1, 0.8, 0, 1, 0},     // max(0.5, 0.8): clipped
      {2.5, -2, 5.0, 5.0, 0, 0},   // below the dual clip, 3 * 2
      {4.0, -2, 6.0, 0, 0, 0},     // max(8, 2.56) = 8, bounded to 6
      {4.0, 2, -2.56, 0, 0, 1},    // the dual clip is for negative advantages alone
      {0.01, -2, 1.6, 0, 1, 0},
  };
  for (const Row& row : table) {
    const Outcome out = run(one_token(row.ratio, row.advantage),
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
  // Without the dual clip the loss of the fourfold ratio stays 8.
  EXPECT_NEAR(run(one_token(4.0, -2), {}).metric(LossMetric::kLoss), 8, 1e-5);
}

TEST(PolicyLoss, CispoByHand) {
  // -clip(r) A log p, the ratio without gradient: r 1.5 -> 1.28, 0.5 -> 0.8, 1.1 stays.
  for (const auto& [ratio, clipped] : {std::pair{1.5, 1.28}, {0.5, 0.8}, {1.1, 1.1}}) {
    for (const double advantage : {2.0, -3.0}) {
      const Problem p = one_token(ratio, advantage);
      const Outcome out =
          run(p, {.kind = LossKind::kCispo, .eps_clip = 0.2f, .eps_clip_high = 0.28f});
      EXPECT_NEAR(out.metric(LossMetric::kLoss), -clipped * advantage * p.log_probs[0], 1e-5);
      EXPECT_NEAR(out.dlog_probs[0], -clipped * advantage, 1e-5);
      EXPECT_EQ(out.metric(LossMetric::kClipFraction), clipped == ratio ? 0 : 1);
    }
  }
}

TEST(PolicyLoss, GspoByHand) {
  // One sample: log-ratios ln 2 and ln 0.5 have mean 0, so the sequence's ratio is 1 and both
  // losses are -A. A masked third token (log-ratio 5) has no say. d loss / d mean = -(0.5 + 0.5),
  // of which each token moves the mean by 1/2.
  Problem p{.cu_rows = {0, 3},
            .log_probs = {-1 + std::log(2), -1 + std::log(0.5), 4},
            .entropies = {},
            .old_log_probs = {-1, -1, -1},
            .ref_log_probs = {},
            .rollout_log_probs = {},
            .advantages = {1, 1, 1},
            .mask = {1, 1, 0},
            .weights = {0.5, 0.5, 0}};
  Outcome out = run(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.metric(LossMetric::kLoss), -1, 1e-6);
  EXPECT_NEAR(out.dlog_probs[0], -0.5, 1e-6);
  EXPECT_NEAR(out.dlog_probs[1], -0.5, 1e-6);
  EXPECT_EQ(out.dlog_probs[2], 0);
  // Tokens of unlike advantages: the mean's derivative -(0.5 * 1 + 0.5 * 5) is still shared evenly.
  p.advantages = {1, 5, 1};
  out = run(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.dlog_probs[0], -1.5, 1e-6);
  EXPECT_NEAR(out.dlog_probs[1], -1.5, 1e-6);
  // Ratios exp((ln 2 + ln 4) / 2) = sqrt 8: clipped at 1.2, so no gradient.
  p.advantages = {1, 1, 1};
  p.log_probs = {-1 + std::log(2), -1 + std::log(4), 4};
  out = run(p, {.kind = LossKind::kGspo});
  EXPECT_NEAR(out.metric(LossMetric::kLoss), -1.2, 1e-6);
  EXPECT_EQ(out.dlog_probs[0], 0);
  EXPECT_NEAR(out.metric(LossMetric::kRatio), std::sqrt(8.0), 1e-5);
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
    const double rounding = std::abs(row.d) * 1.2e-7;  // of expm1(-d), and of d itself
    EXPECT_NEAR(kl.value, row.value, 1e-6 * std::abs(row.value) + rounding) << row.d;
    EXPECT_NEAR(kl.derivative, row.derivative, 1e-5 * std::abs(row.derivative)) << row.d;
  }
  EXPECT_EQ(estimate_kl(KlKind::kK3, 0).value, 0);
  EXPECT_EQ(estimate_kl(KlKind::kLowVar, 0).derivative, 0);
  // Times the ratio: k1 at d 0.5 and ratio 2 is 1; d/dlogp = (1 + 0.5) * 2.
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
  // Loss -1 before the weight; clipped to [0.5, 2].
  struct Row {
    double raw, truncated, masked, clipped;
  };
  for (const Row& row : {Row{1.5, 1.5, 1.5, 0}, {3, 2, 0, 1}, {0.25, 0.5, 0, 1}}) {
    Problem p = one_token(1, 1);
    p.rollout_log_probs = {-1 - std::log(row.raw)};
    PolicyLossOptions o{.tis = TisMode::kTruncate, .tis_clip = 2, .tis_clip_low = 0.5f};
    const Outcome truncated = run(p, o);
    EXPECT_NEAR(truncated.metric(LossMetric::kPgLoss), -row.truncated, 1e-6);
    EXPECT_NEAR(truncated.dlog_probs[0], -row.truncated, 1e-6);
    EXPECT_NEAR(truncated.metric(LossMetric::kTis), row.raw, 1e-6);
    EXPECT_NEAR(truncated.metric(LossMetric::kTisAbs), std::abs(row.raw - 1), 1e-6);
    EXPECT_EQ(truncated.metric(LossMetric::kTisClipFraction), row.clipped);
    o.tis = TisMode::kMask;
    const Outcome masked = run(p, o);
    EXPECT_NEAR(masked.metric(LossMetric::kPgLoss), -row.masked, 1e-6);
    EXPECT_NEAR(masked.dlog_probs[0], -row.masked, 1e-6);
    o.tis = TisMode::kOff;
    EXPECT_NEAR(run(p, o).metric(LossMetric::kPgLoss), -1, 1e-6);
    // Without old log-probs the weight is the current policy's over the engine's.
    p.old_log_probs.clear();
    o.tis = TisMode::kTruncate;
    EXPECT_NEAR(run(p, o).metric(LossMetric::kPgLoss), -row.truncated, 1e-6);
  }
}

TEST(PolicyLoss, EntropyAndRolloutDifference) {
  Problem p = one_token(1, 2);
  p.entropies = {3};
  p.rollout_log_probs = {-1.25};
  p.weights = {0.5};
  const Outcome out = run(p, {.entropy_coef = 0.25f});
  EXPECT_EQ(out.metric(LossMetric::kPgLoss), -1);
  EXPECT_EQ(out.metric(LossMetric::kEntropy), 1.5);
  EXPECT_EQ(out.metric(LossMetric::kLoss), -1 - 0.25 * 1.5);
  EXPECT_EQ(out.dentropies[0], -0.125);
  EXPECT_EQ(out.metric(LossMetric::kLogProbAbsDiff), 0.125);
  EXPECT_EQ(out.metric(LossMetric::kLogProbMaxDiff), 0.25);
  EXPECT_EQ(out.metric(LossMetric::kLogProbMismatches), 1);
  EXPECT_EQ(out.metric(LossMetric::kTokens), 1);
}

// Without old log-probs they are the current ones: the ratio is 1 to the last bit, and its gradient
// that of -A log p.
TEST(PolicyLoss, RatioIsExactlyOneWithoutOldLogProbs) {
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo, LossKind::kCispo}) {
    Problem p = one_token(1.7, 3);
    p.old_log_probs.clear();
    const Outcome out = run(p, {.kind = kind});
    EXPECT_EQ(out.metric(LossMetric::kRatio), 1);
    EXPECT_EQ(out.metric(LossMetric::kPpoKl), 0);
    EXPECT_EQ(out.metric(LossMetric::kClipFraction), 0);
    EXPECT_EQ(out.dlog_probs[0], -3);
  }
}

// Four samples of eight tokens with losses 1..8 times 10^k: mean of the samples' means
// (4.5 + 45 + 450 + 4500) / 4 = 1249.875, in one microbatch or in four.
TEST(PolicyLoss, AggregationByHand) {
  Problem all{.cu_rows = {0},
              .log_probs = {},
              .entropies = {},
              .old_log_probs = {},
              .ref_log_probs = {},
              .rollout_log_probs = {},
              .advantages = {},
              .mask = {},
              .weights = {}};
  Outcome by_sample;
  const PolicyLossOptions sft{.kind = LossKind::kSft};
  for (int k = 0; k < 4; ++k) {
    Problem one = all;
    one.cu_rows = {0, 8};
    one.log_probs = one.mask = one.weights = {};
    for (int x = 1; x <= 8; ++x) {
      one.log_probs.push_back(-x * std::pow(10, k));
      one.mask.push_back(1);
      one.weights.push_back(1.0 / 32);
    }
    by_sample = run(one, sft, std::move(by_sample));
    all.log_probs.insert(all.log_probs.end(), one.log_probs.begin(), one.log_probs.end());
    all.mask.resize(all.log_probs.size(), 1);
    all.weights.resize(all.log_probs.size(), 1.0 / 32);
    all.cu_rows.push_back(static_cast<int32_t>(all.log_probs.size()));
  }
  const Outcome at_once = run(all, sft);
  EXPECT_EQ(at_once.metric(LossMetric::kLoss), 1249.875);
  EXPECT_EQ(by_sample.metric(LossMetric::kLoss), 1249.875);
  for (const double d : at_once.dlog_probs) EXPECT_EQ(d, -1.0 / 32);
}

// ---- derivatives against central differences of the loss, written down a second time ----

double kl_of(const Problem& p, const PolicyLossOptions& o, size_t r, double log_prob, double old) {
  const double d = log_prob - p.ref_log_probs[r];
  double kl = 0;
  if (o.kl_kind == KlKind::kK1) kl = d;
  if (o.kl_kind == KlKind::kK2) kl = d * d / 2;
  if (o.kl_kind == KlKind::kK3 || o.kl_kind == KlKind::kLowVar) kl = std::exp(-d) - 1 + d;
  if (o.unbiased_kl) kl *= std::exp(log_prob - old);
  return o.kl_kind == KlKind::kLowVar ? std::clamp(kl, -10.0, 10.0) : kl;
}

double token_loss(const PolicyLossOptions& o, double log_ratio, double frozen_log_ratio,
                  double log_prob, double advantage) {
  const auto clip = [&](double r) {
    return std::min(std::max(r, 1.0 - double{o.eps_clip}), 1.0 + double{o.eps_clip_high});
  };
  if (o.kind == LossKind::kSft) return -log_prob;
  if (o.kind == LossKind::kCispo) return -clip(std::exp(frozen_log_ratio)) * advantage * log_prob;
  const double r = std::exp(log_ratio);
  const double loss = std::max(-r * advantage, -clip(r) * advantage);
  return o.eps_clip_c > 0 && advantage < 0 ? std::min(loss, -o.eps_clip_c * advantage) : loss;
}

// p.log_probs are what "without gradient" refers to; `log_probs` and `entropies` vary.
double reference_loss(const Problem& p, const PolicyLossOptions& o,
                      const std::vector<double>& log_probs, const std::vector<double>& entropies) {
  const std::vector<double>& old = p.old_log_probs.empty() ? p.log_probs : p.old_log_probs;
  double loss = 0;
  for (size_t s = 0; s + 1 < p.cu_rows.size(); ++s) {
    const auto begin = static_cast<size_t>(p.cu_rows[s]),
               end = static_cast<size_t>(p.cu_rows[s + 1]);
    double sum = 0, count = 0;
    for (size_t r = begin; r < end; ++r) {
      sum += p.mask[r] * (log_probs[r] - old[r]);
      count += p.mask[r];
    }
    for (size_t r = begin; r < end; ++r) {
      if (p.mask[r] == 0) continue;
      const double own = log_probs[r] - old[r];
      const double log_ratio = o.kind == LossKind::kGspo ? sum / std::max(count, 1.0) : own;
      double term = token_loss(o, log_ratio, p.log_probs[r] - old[r], log_probs[r],
                               p.advantages.empty() ? 0 : p.advantages[r]);
      if (o.tis != TisMode::kOff) {
        const double raw = std::exp(old[r] - p.rollout_log_probs[r]);
        const bool outside = raw < o.tis_clip_low || raw > o.tis_clip;
        term *= o.tis == TisMode::kMask
                    ? (outside ? 0 : raw)
                    : std::clamp(raw, double{o.tis_clip_low}, double{o.tis_clip});
      }
      if (o.use_kl) term += o.kl_coef * kl_of(p, o, r, log_probs[r], old[r]);
      if (!entropies.empty()) term -= o.entropy_coef * entropies[r];
      loss += p.weights[r] * term;
    }
  }
  return loss;
}

Problem random_problem(uint64_t seed, bool per_token) {
  PhiloxStream random(seed, 5);
  const auto normal = [&](double scale) {
    return double{static_cast<float>(scale * random.next_normal())};
  };
  Problem p;
  p.cu_rows = {0};
  const int num_samples = 5;
  std::vector<double> counts;
  for (int s = 0; s < num_samples; ++s) {
    const auto length = static_cast<int32_t>(1 + random.next_below(9));
    double count = 0;
    for (int32_t t = 0; t < length; ++t) {
      p.log_probs.push_back(-std::abs(normal(2)));
      p.old_log_probs.push_back(double{static_cast<float>(p.log_probs.back() + normal(0.3))});
      p.ref_log_probs.push_back(double{static_cast<float>(p.log_probs.back() + normal(1.5))});
      p.rollout_log_probs.push_back(double{static_cast<float>(p.log_probs.back() + normal(0.8))});
      p.entropies.push_back(std::abs(normal(2)));
      p.advantages.push_back(normal(1.5));
      p.mask.push_back(s == 3 || random.next_below(4) > 0 ? 1 : 0);
      count += p.mask.back();
    }
    counts.push_back(count);
    p.cu_rows.push_back(p.cu_rows.back() + length);
  }
  double total = 0;
  for (const double c : counts) total += c;
  for (size_t s = 0; s < counts.size(); ++s) {
    for (int32_t r = p.cu_rows[s]; r < p.cu_rows[s + 1]; ++r) {
      const double denominator = per_token ? total : std::max(counts[s], 1.0) * num_samples;
      p.weights.push_back(double{static_cast<float>(p.mask[static_cast<size_t>(r)] / denominator)});
    }
  }
  return p;
}

void expect_derivatives(const Problem& p, const PolicyLossOptions& o, const std::string& what) {
  constexpr double kStep = 1e-5;
  const Outcome out = run(p, o);
  const double expected = reference_loss(p, o, p.log_probs, p.entropies);
  EXPECT_NEAR(out.metric(LossMetric::kLoss), expected, 2e-6 * (1 + std::abs(expected))) << what;
  for (size_t r = 0; r < p.log_probs.size(); ++r) {
    const auto difference = [&](std::vector<double> up, bool of_entropy) {
      std::vector<double> down = up;
      up[r] += kStep, down[r] -= kStep;
      return of_entropy ? (reference_loss(p, o, p.log_probs, up) -
                           reference_loss(p, o, p.log_probs, down)) /
                              (2 * kStep)
                        : (reference_loss(p, o, up, p.entropies) -
                           reference_loss(p, o, down, p.entropies)) /
                              (2 * kStep);
    };
    const double d = difference(p.log_probs, false);
    EXPECT_NEAR(out.dlog_probs[r], d, 1e-6 + 1e-5 * std::abs(d)) << what << ", row " << r;
    if (o.entropy_coef != 0) {
      EXPECT_NEAR(out.dentropies[r], difference(p.entropies, true), 1e-6) << what << ", row " << r;
    }
    if (p.mask[r] == 0) {
      EXPECT_EQ(out.dlog_probs[r], 0) << what << ", row " << r;
    }
  }
}

TEST(PolicyLoss, DerivativesAgreeWithDifferences) {
  for (const bool per_token : {false, true}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (const LossKind kind :
           {LossKind::kClip, LossKind::kGspo, LossKind::kCispo, LossKind::kSft}) {
        for (int variant = 0; variant < cases::kPolicyLossVariants; ++variant) {
          Problem p = random_problem(seed, per_token);
          const PolicyLossOptions o = cases::policy_loss_variant(kind, variant);
          if (variant == 4) p.old_log_probs.clear();
          expect_derivatives(p, o,
                             "seed " + std::to_string(seed) + ", kind " +
                                 std::to_string(static_cast<int>(kind)) + ", variant " +
                                 std::to_string(variant) + (per_token ? ", per token" : ""));
        }
      }
    }
  }
}

// A sample's terms are its own: any split into microbatches gives the same derivatives to the bit.
TEST(PolicyLoss, SplitsChangeNothing) {
  const Problem p = random_problem(11, false);
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo}) {
    const PolicyLossOptions o{.kind = kind, .use_kl = true, .kl_coef = 0.1f};
    const Outcome whole = run(p, o);
    Outcome parts;
    for (size_t s = 0; s + 1 < p.cu_rows.size(); ++s) {
      Problem one;
      const auto begin = p.cu_rows[s], end = p.cu_rows[s + 1];
      one.cu_rows = {0, end - begin};
      for (auto field : {&Problem::log_probs, &Problem::entropies, &Problem::old_log_probs,
                         &Problem::ref_log_probs, &Problem::rollout_log_probs, &Problem::advantages,
                         &Problem::mask, &Problem::weights})
        (one.*field).assign((p.*field).begin() + begin, (p.*field).begin() + end);
      parts = run(one, o, std::move(parts));
      for (int32_t r = begin; r < end; ++r)
        EXPECT_EQ(parts.dlog_probs[static_cast<size_t>(r - begin)],
                  whole.dlog_probs[static_cast<size_t>(r)])
            << "row " << r;
    }
    for (size_t m = 0; m < whole.metrics.size(); ++m)
      EXPECT_NEAR(parts.metrics[m], whole.metrics[m], 1e-12) << "metric " << m;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing

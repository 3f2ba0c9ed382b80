// Compares derivatives of the policy loss with central differences of an independent implementation
// of the loss.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ops/option_cases.h"
#include "ops/policy_loss/policy_loss_problem.h"
#include "slimexx/base/philox.h"

namespace slimexx::ops::testing {
namespace {

double kl_of(const LossProblem& p, const PolicyLossOptions& o, size_t r, double log_prob,
             double old) {
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

// Terms without gradient use p.log_probs; gradients are with respect to `log_probs` and
// `entropies`.
double reference_loss(const LossProblem& p, const PolicyLossOptions& o,
                      const std::vector<double>& log_probs, const std::vector<double>& entropies) {
  const std::vector<double>& old = p.old_log_probs.empty() ? p.log_probs : p.old_log_probs;
  double loss = 0;
  for (size_t s = 0; s + 1 < p.cu_rows.size(); ++s) {
    const auto begin = static_cast<size_t>(p.cu_rows[s]),
               end = static_cast<size_t>(p.cu_rows[s + 1]);
    double sum = 0, frozen_sum = 0, count = 0;
    for (size_t r = begin; r < end; ++r) {
      sum += p.mask[r] * (log_probs[r] - old[r]);
      frozen_sum += p.mask[r] * (p.log_probs[r] - old[r]);
      count += p.mask[r];
    }
    for (size_t r = begin; r < end; ++r) {
      if (p.mask[r] == 0) continue;
      const double own = log_probs[r] - old[r];
      const double log_ratio = o.kind == LossKind::kGspo ? sum / std::max(count, 1.0) : own;
      double term = token_loss(o, log_ratio, p.log_probs[r] - old[r], log_probs[r],
                               p.advantages.empty() ? 0 : p.advantages[r]);
      const bool has_drifted = -frozen_sum / std::max(count, 1.0) > double{o.opsm_delta};
      if (o.use_opsm && o.kind != LossKind::kSft && has_drifted && p.advantages[r] < 0) term = 0;
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

LossProblem random_problem(uint64_t seed, bool per_token) {
  PhiloxStream random(seed, 5);
  const auto normal = [&](double scale) {
    return double{static_cast<float>(scale * random.next_normal())};
  };
  LossProblem p;
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

void expect_derivatives(const LossProblem& p, const PolicyLossOptions& o, const std::string& what) {
  constexpr double kStep = 1e-5;
  const LossOutcome out = run_policy_loss(p, o);
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

TEST(PolicyLossDerivatives, AgreeWithDifferences) {
  for (const bool per_token : {false, true}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      for (const LossKind kind :
           {LossKind::kClip, LossKind::kGspo, LossKind::kCispo, LossKind::kSft}) {
        for (int variant = 0; variant < cases::kPolicyLossVariants; ++variant) {
          LossProblem p = random_problem(seed, per_token);
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

// A sample's terms do not depend on other samples: any split into microbatches gives the same bits.
TEST(PolicyLossDerivatives, SplitsChangeNothing) {
  const LossProblem p = random_problem(11, false);
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo}) {
    const PolicyLossOptions o{.kind = kind, .use_kl = true, .kl_coef = 0.1f};
    const LossOutcome whole = run_policy_loss(p, o);
    LossOutcome parts;
    for (size_t s = 0; s + 1 < p.cu_rows.size(); ++s) {
      LossProblem one;
      const auto begin = p.cu_rows[s], end = p.cu_rows[s + 1];
      one.cu_rows = {0, end - begin};
      for (auto field :
           {&LossProblem::log_probs, &LossProblem::entropies, &LossProblem::old_log_probs,
            &LossProblem::ref_log_probs, &LossProblem::rollout_log_probs, &LossProblem::advantages,
            &LossProblem::mask, &LossProblem::weights})
        (one.*field).assign((p.*field).begin() + begin, (p.*field).begin() + end);
      parts = run_policy_loss(one, o, std::move(parts));
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

// Compares token losses and their derivatives on the device with the CPU's, for every kind of loss.
#include "slimexx/ops/policy_loss.h"

#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/option_cases.h"

namespace slimexx::ops::testing {
namespace {

class PolicyLossCuda : public DeviceTest {};

// Tolerances: both sides use the same f32 formulas, but different implementations of exp.
constexpr double kRelative = 1e-5, kAbsolute = 1e-6;

struct Problem {
  std::vector<int32_t> cu_rows{0};
  Array log_probs, entropies, old_log_probs, ref_log_probs, rollout_log_probs, advantages, mask,
      weights;

  Problem(int num_samples, uint64_t seed, bool with_old) {
    PhiloxStream random(seed, 8);
    for (int s = 0; s < num_samples; ++s)
      cu_rows.push_back(cu_rows.back() + static_cast<int32_t>(1 + random.next_below(40)));
    const int64_t n = cu_rows.back();
    log_probs = Array::random({n}, seed + 1, 0.7, -1.5);
    entropies = Array::random({n}, seed + 2, 0.3, 1.5);
    const auto near = [&](uint64_t own, double scale) {
      Array a = Array::random({n}, seed + own, scale);
      for (int64_t i = 0; i < n; ++i) a[i] += log_probs[i];
      return a;
    };
    if (with_old) old_log_probs = near(3, 0.3);
    ref_log_probs = near(4, 1.5);
    rollout_log_probs = near(5, 0.8);
    advantages = Array::random({n}, seed + 6, 1.5);
    mask = Array({n});
    weights = Array({n});
    for (int64_t i = 0; i < n; ++i) {
      mask[i] = random.next_below(4) > 0 ? 1.0f : 0.0f;
      weights[i] = mask[i] / static_cast<float>(n);
    }
  }
};

struct Outcome {
  Array dlog_probs, dentropies;
  std::vector<double> metrics;
};

Outcome on_cpu(const Problem& p, const PolicyLossOptions& o) {
  const int64_t n = p.log_probs.size();
  Outcome out{Array({n}), Array({n}), std::vector<double>(kNumLossMetrics)};
  const tensor::Tensor metrics(out.metrics.data(), DType::kF64, {}, {kNumLossMetrics});
  policy_loss(cpu_context(), out.dlog_probs, out.dentropies, metrics,
              {.log_probs = p.log_probs,
               .entropies = p.entropies,
               .old_log_probs = p.old_log_probs,
               .ref_log_probs = p.ref_log_probs,
               .rollout_log_probs = p.rollout_log_probs,
               .advantages = p.advantages,
               .mask = p.mask,
               .weights = p.weights,
               .cu_rows = p.cu_rows},
              o);
  return out;
}

Outcome on_device(const Problem& p, const PolicyLossOptions& o) {
  Array blank({p.log_probs.size()});
  blank.fill(123.0f);  // must be overwritten
  const OnDevice dlog_probs = as_is(blank), dentropies = as_is(blank),
                 log_probs = as_is(p.log_probs), entropies = as_is(p.entropies),
                 old = as_is(p.old_log_probs), ref = as_is(p.ref_log_probs),
                 rollout = as_is(p.rollout_log_probs), advantages = as_is(p.advantages),
                 mask = as_is(p.mask), weights = as_is(p.weights),
                 cu = integers_on_device(p.cu_rows),
                 metrics = as_is(Array({kNumLossMetrics}, DType::kF64));
  run_op([&](const Context& s) {
    policy_loss(s, dlog_probs, dentropies, metrics,
                {.log_probs = log_probs,
                 .entropies = entropies,
                 .old_log_probs = old,
                 .ref_log_probs = ref,
                 .rollout_log_probs = rollout,
                 .advantages = advantages,
                 .mask = mask,
                 .weights = weights,
                 .cu_rows = p.cu_rows,
                 .device_cu_rows = cu},
                o);
  });
  const Array sums = metrics.back();
  const auto* first = sums.view().data<double>();
  return {dlog_probs.back(), dentropies.back(), {first, first + kNumLossMetrics}};
}

std::vector<PolicyLossOptions> all_options() {
  std::vector<PolicyLossOptions> all;
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo, LossKind::kCispo, LossKind::kSft})
    for (int variant = 0; variant < cases::kPolicyLossVariants; ++variant)
      all.push_back(cases::policy_loss_variant(kind, variant));
  return all;
}

TEST_F(PolicyLossCuda, AgreesWithTheCpuAndHasTheSameBitsEveryTime) {
  for (const int num_samples : {1, 5, 90})
    for (const bool with_old : {true, false}) {
      const Problem p(num_samples, 7, with_old);
      int index = 0;
      for (const PolicyLossOptions& o : all_options()) {
        const std::string name = "options " + std::to_string(index++) + ", " +
                                 std::to_string(num_samples) + " samples, seed 7, old log-probs " +
                                 std::to_string(with_old);
        const Outcome expected = on_cpu(p, o), got = on_device(p, o), again = on_device(p, o);
        EXPECT_TRUE(close(got.dlog_probs, doubles(expected.dlog_probs), kRelative, kAbsolute))
            << name;
        EXPECT_TRUE(close(got.dentropies, doubles(expected.dentropies), kRelative, kAbsolute))
            << name;
        EXPECT_TRUE(same_bits(again.dlog_probs, got.dlog_probs)) << name;
        EXPECT_EQ(again.metrics, got.metrics) << name;
        for (size_t m = 0; m < got.metrics.size(); ++m)
          EXPECT_NEAR(got.metrics[m], expected.metrics[m],
                      kAbsolute + kRelative * std::abs(expected.metrics[m]))
              << name << ", metric " << m;
      }
    }
}

}  // namespace
}  // namespace slimexx::ops::testing

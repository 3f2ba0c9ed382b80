#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cpu_context.h"
#include "ops/testing.h"
#include "slimexx/kernels/token_loss.h"
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops::testing {

// One microbatch in doubles that are exact in f32. Empty vectors are absent tensors.
struct LossProblem {
  std::vector<int32_t> cu_rows;
  std::vector<double> log_probs, entropies, old_log_probs, ref_log_probs, rollout_log_probs,
      advantages, mask, weights;
};

struct LossOutcome {
  std::vector<double> dlog_probs, dentropies;
  std::vector<double> metrics = std::vector<double>(kNumLossMetrics);
  double metric(LossMetric m) const { return metrics[static_cast<size_t>(m)]; }
};

inline Array to_array(const std::vector<double>& values) {
  Array a({static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    a[static_cast<int64_t>(i)] = static_cast<float>(values[i]);
  return a;
}

inline LossOutcome run_policy_loss(const LossProblem& p, const PolicyLossOptions& options,
                                   LossOutcome out = {}) {
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
}  // namespace slimexx::ops::testing

// The operands of policy_loss as its formulas take them: plain pointers, of either device.
#pragma once
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops {

kernels::PolicyLossArgs describe_policy_loss(const Tensor& dlog_probs, const Tensor& dentropies,
                                             const Tensor& metrics, const PolicyLossRows& rows,
                                             const PolicyLossOptions& options);

}  // namespace slimexx::ops

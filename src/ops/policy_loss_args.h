// The operands of policy_loss in the form that its formulas take: plain pointers, on either device.
#pragma once
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops {

kernels::PolicyLossArgs describe_policy_loss(const Tensor& dlog_probs, const Tensor& dentropies,
                                             const Tensor& metrics, const PolicyLossRows& rows,
                                             const PolicyLossOptions& options);

}  // namespace slimexx::ops

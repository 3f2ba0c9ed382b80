#pragma once
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops::cpu {

void policy_loss(Tensor dlog_probs, Tensor dentropies, Tensor metrics, const PolicyLossRows& rows,
                 const PolicyLossOptions& options);

}  // namespace slimexx::ops::cpu

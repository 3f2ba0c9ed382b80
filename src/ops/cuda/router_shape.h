// A router's rule in the form that its kernels take.
#pragma once
#include "slimexx/kernels/experts.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops::cuda {

inline kernels::RouterShape shape_of(const RouterRule& rule) {
  return {.experts = rule.num_experts,
          .top_k = rule.top_k,
          .groups = rule.num_groups,
          .kept_groups = rule.kept_groups,
          .sigmoid = rule.score == RouterScore::kSigmoid,
          .normalized = rule.normalized,
          .epsilon = rule.epsilon,
          .scaling_factor = rule.scaling_factor};
}

}  // namespace slimexx::ops::cuda

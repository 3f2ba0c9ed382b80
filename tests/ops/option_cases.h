// Options shared by the tests of ops on the CPU and on a device.
#pragma once
#include "slimexx/ops/optimizer.h"
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops::cases {

// Every term of the update counts: no factor is close to 0 or 1. The test sets the step.
inline constexpr AdamWStep kAdamWStep{.lr = 1e-2f,
                                      .beta1 = 0.9f,
                                      .beta2 = 0.98f,
                                      .eps = 1e-8f,
                                      .weight_decay = 0.1f,
                                      .step = 0,
                                      .gradient_scale = 0.5f};

// Together the variants turn every option on and off, and use every KL estimate and every kind of
// importance sampling.
inline constexpr int kPolicyLossVariants = 8;
inline PolicyLossOptions policy_loss_variant(LossKind kind, int variant) {
  PolicyLossOptions o{.kind = kind, .eps_clip = 0.2f, .eps_clip_high = 0.28f};
  o.eps_clip_c = variant % 2 == 1 ? 1.3f : 0.0f;
  o.entropy_coef = variant % 3 == 1 ? 0.01f : 0.0f;
  o.use_kl = variant >= 2;
  o.kl_coef = 0.3f;
  o.kl_kind = static_cast<KlKind>(variant % 4);
  o.unbiased_kl = variant >= 5;
  o.tis = static_cast<TisMode>(variant % 3);
  o.tis_clip_low = 0.6f;
  o.tis_clip = 1.5f;
  o.use_opsm = variant == 3 || variant == 6;
  o.opsm_delta = 0.02f;
  o.compare_masked = variant >= 4;
  return o;
}

}  // namespace slimexx::ops::cases

// What a training step sums of a router, and how: one source for the CPU's balance_router and the
// device's kernel, free of CUDA. Sums are of integers, which have no order, so that neither
// packing nor microbatches nor ranks change a bit of them; what is no integer counts in units.
#pragma once
#include <cmath>
#include <cstdint>

#include "slimexx/kernels/both_sides.h"

namespace slimexx::kernels {

struct RouterBalanceRule {
  float aux_loss_coeff = 0, z_loss_coeff = 0;
  int64_t sequences = 1;  // of the whole step, whatever this call has
};

// Of E experts: how many tokens chose each [E], their summed probabilities [E], the auxiliary loss
// and the z loss, both without coefficient.
SLX_BOTH_SIDES int64_t count_router_sums(int64_t experts) { return 2 * experts + 2; }

inline constexpr double kProbabilityUnits = 0x1p32, kAuxLossUnits = 0x1p48, kZLossUnits = 0x1p40;
// Larger terms of a loss count as these, NaN too: no sum of a step overflows.
inline constexpr double kMostAuxLoss = 0x1p12, kMostZLoss = 0x1p21;

// Added to the sum of sigmoid scores that probabilities divide by: all may have vanished.
inline constexpr float kLeastScore = 1e-20f;

SLX_BOTH_SIDES int64_t probability_units(float probability) {
  if (!(probability >= 0)) return 0;  // NaN
  return llrint(fmin(static_cast<double>(probability), 1.0) * kProbabilityUnits);
}
// `share`: what the token weighs in the mean over the step.
SLX_BOTH_SIDES int64_t loss_units(double value, double most, double share, double units) {
  return llrint((value < most ? value : most) * share * units);
}
// A sequence of `tokens` tokens weighs as much as any other one of the step.
SLX_BOTH_SIDES double token_share(const RouterBalanceRule& rule, int64_t tokens) {
  return 1.0 / (static_cast<double>(rule.sequences) * static_cast<double>(tokens));
}
// Towards the mean load.
SLX_BOTH_SIDES float move_bias(float bias, int64_t load, int64_t total, int64_t experts,
                               float rate) {
  const int64_t mean = total, own = load * experts;  // both times the number of experts
  return own < mean ? bias + rate : (own > mean ? bias - rate : bias);
}

}  // namespace slimexx::kernels

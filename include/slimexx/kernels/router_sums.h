// The sums that a training step collects for a router. balance_router on the CPU and the device's
// kernel share this source, which compiles without CUDA. All sums are integers, so packing,
// microbatches and ranks do not change their bits. Fractions are integers in fixed-point units.
#pragma once
#include <cmath>
#include <cstdint>

#include "slimexx/kernels/both_sides.h"

namespace slimexx::kernels {

struct RouterBalanceRule {
  float aux_loss_coeff = 0, z_loss_coeff = 0;
  int64_t sequences = 1;  // of the whole step, not only of this call
};

// The number of sums for E experts: tokens that chose each expert [E], summed probabilities [E],
// the auxiliary loss and the z loss, both without their coefficients.
SLX_BOTH_SIDES int64_t count_router_sums(int64_t experts) { return 2 * experts + 2; }

inline constexpr double kProbabilityUnits = 0x1p32, kAuxLossUnits = 0x1p48, kZLossUnits = 0x1p40;
// Larger terms of a loss, and NaN, count as these limits, so that no sum of a step overflows.
inline constexpr double kMostAuxLoss = 0x1p12, kMostZLoss = 0x1p21;

// Added to the sum of a token's sigmoid scores before the division by the sum, because all scores
// may be 0.
inline constexpr float kLeastScore = 1e-20f;

SLX_BOTH_SIDES int64_t probability_units(float probability) {
  if (!(probability >= 0)) return 0;  // NaN
  return llrint(fmin(static_cast<double>(probability), 1.0) * kProbabilityUnits);
}
// `share`: the weight of the token in the mean over the step.
SLX_BOTH_SIDES int64_t loss_units(double value, double most, double share, double units) {
  return llrint((value < most ? value : most) * share * units);
}
// Every sequence of the step has the same weight, whatever its number of tokens.
SLX_BOTH_SIDES double token_share(const RouterBalanceRule& rule, int64_t tokens) {
  return 1.0 / (static_cast<double>(rule.sequences) * static_cast<double>(tokens));
}
// Moves the bias towards the mean load.
SLX_BOTH_SIDES float move_bias(float bias, int64_t load, int64_t total, int64_t experts,
                               float rate) {
  const int64_t mean = total, own = load * experts;  // both multiplied by the number of experts
  return own < mean ? bias + rate : (own > mean ? bias - rate : bias);
}

}  // namespace slimexx::kernels

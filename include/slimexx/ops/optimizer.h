// AdamW and norms over flat tensors.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

struct AdamWStep {
  float lr, beta1, beta2, eps, weight_decay;
  int64_t step;          // 1-based, for the bias correction
  float gradient_scale;  // multiplies the gradient first (clipping)
};
// Flat [n] tensors: master weights and gradient f32; first and second moments both f32 or both
// bf16; `weights` (may be the master itself, or another dtype) receives the rounded result.
// Decoupled decay as torch.optim.AdamW:
//   p *= 1 - lr*wd; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   p -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
// Moments in bf16 are widened, updated in f32, used for p as they are then, and stored rounded to
// nearest even. Rounding by chance would be right on average, but its bits would hang on a random
// stream that every cut of the state and every resume had to reproduce; to nearest they depend on
// the element alone. The price: a moment stays where it is while a step would move it by less than
// half a bf16 unit, 2^-9 to 2^-8 of itself, so that a moment whose beta is above 1 - 2^-8 may never
// fall back once gradients are small.
void adamw(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
           Tensor gradient, const AdamWStep& step);
// The same over ranges of master and moments [n], each with its own decay (step.weight_decay is
// unused). `weights` and `gradient` [m] may be longer: element i of a range is their element
// i + shift, so that the state may hold some pieces of theirs one after another. Ranges ascend and
// do not overlap, here or there. (scratch)
struct DecayRange {
  int64_t begin = 0, end = 0;
  float weight_decay = 0;
  int64_t shift = 0;
};
void adamw_ranges(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg,
                  Tensor exp_avg_sq, Tensor gradient, std::span<const DecayRange> ranges,
                  const AdamWStep& step);
// (scratch) Sum of squares in double, in a fixed order; NaN or Inf pass through. Waits for the
// stream.
double sum_of_squares(const Context& ctx, Tensor x);
// The same over ranges of x [n] alone. The order depends on the ranges' lengths and sequence, not
// on where they lie; of a single one it is that of sum_of_squares.
struct ElementRange {
  int64_t begin = 0, end = 0;
};
double sum_of_squares_of_ranges(const Context& ctx, Tensor x, std::span<const ElementRange> ranges);

}  // namespace slimexx::ops

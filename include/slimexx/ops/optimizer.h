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
// Decoupled decay as in torch.optim.AdamW:
//   p *= 1 - lr*wd; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
//   p -= lr * (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps)
// bf16 moments are widened, updated in f32, used for p in f32, then stored rounded to nearest even.
// Stochastic rounding would be right on average, but its bits would need a random stream that every
// shard of the state and every resume had to reproduce; rounding to nearest depends on the element
// alone. The price: a moment does not move while its update is below half a bf16 unit, 2^-9 to 2^-8
// of its value, so a moment with beta above 1 - 2^-8 can stop decaying once gradients are small.
void adamw(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
           Tensor gradient, const AdamWStep& step);
// (scratch) Like adamw, over ranges of master and moments [n], each with its own decay
// (step.weight_decay is unused). `weights` and `gradient` [m] may be longer than the state: element
// i of a range is their element i + shift, so the state may hold several pieces of them back to
// back. Ranges ascend and overlap neither in the state nor in `weights`.
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
// Like sum_of_squares, over ranges of x [n] only. The order of the sum depends on the lengths and
// sequence of the ranges, not on their positions; one range gives the order of sum_of_squares.
struct ElementRange {
  int64_t begin = 0, end = 0;
};
double sum_of_squares_of_ranges(const Context& ctx, Tensor x, std::span<const ElementRange> ranges);

}  // namespace slimexx::ops

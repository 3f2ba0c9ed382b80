// How evenly a router spreads its tokens over the experts: what a step reports of it, the losses
// that keep it even, and the rule that moves the correction bias (DeepSeek-V3, arXiv:2412.19437).
//
// A sequence s of n tokens has, of token t, probabilities p = scores / their sum (softmax: the
// scores), and counts c_e of its n k choices. With f_e = E c_e / (k n), which counts as constant,
//   aux loss = mean over s of mean over t of sum over e of f_e p_e       (1 where all is even)
//   z loss   = mean over s of mean over t of logsumexp(logits)^2         (arXiv:2202.08906)
//
// Legend: T packed tokens, E experts, k experts of a token, S sequences.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/kernels/router_sums.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops {

using kernels::count_router_sums;
using kernels::RouterBalanceRule;

// Tokens by sequence, of which this rank may have a part. All of its tokens belong to one.
struct PackedSequences {
  std::span<const int32_t> cu_seqlens = {};            // [S+1] of the tokens here
  std::span<const int32_t> lengths = {};               // [S] of the whole sequences
  Tensor device_cu_seqlens = {}, device_lengths = {};  // the same, i32, on CUDA only
  int64_t count() const { return std::ssize(lengths); }
};

// counts[S,E] f32 become how many of the tokens here chose each expert, and sums [2E+2] i64, as
// router_sums.h says, get the same added to the experts' loads. Ranks that have parts of the same
// sequences add up their counts before balance_router: whole numbers, which no order changes.
void count_choices(const Context& ctx, Tensor counts, Tensor sums, Tensor ids,
                   const PackedSequences& sequences);
// The rest of `sums` is added to; dlogits[T,E] f32 is added to, unless both coefficients are 0.
// counts[S,E] are those of whole sequences.
void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance);
// bias[E] f32 moves by `rate`: up where an expert's load in sums [2E+2] i64 is below the mean load,
// down where it is above.
void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate);

}  // namespace slimexx::ops

// Load balancing of a router: the metrics of a step, the losses that keep the load even, and the
// update of the correction bias (DeepSeek-V3, arXiv:2412.19437).
//
// For a sequence s of n tokens: p are the probabilities of a token t, its scores divided by their
// sum (softmax: the scores); c_e counts how many of the n k choices are expert e; f_e = E c_e / (k
// n) counts as constant.
//   aux loss = mean over s of mean over t of sum over e of f_e p_e       (1 if all is even)
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

// Tokens by sequence. A rank may hold only a part of each sequence; every token belongs to exactly
// one sequence.
struct PackedSequences {
  std::span<const int32_t> cu_seqlens = {};            // [S+1], of the tokens on this rank
  std::span<const int32_t> lengths = {};               // [S] of the whole sequences
  Tensor device_cu_seqlens = {}, device_lengths = {};  // the same, i32, on CUDA only
  int64_t count() const { return std::ssize(lengths); }
};

// Writes counts[S,E] f32: how many of this rank's tokens chose each expert. Adds the same to the
// expert loads in sums [2E+2] i64 (router_sums.h). Ranks that hold parts of the same sequences add
// up their counts before balance_router. Counts are whole numbers, so the order does not matter.
void count_choices(const Context& ctx, Tensor counts, Tensor sums, Tensor ids,
                   const PackedSequences& sequences);
// Adds to all of `sums` except the loads, and to dlogits[T,E] f32 unless both coefficients are 0.
// counts[S,E] must cover whole sequences.
void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance);
// Moves bias[E] f32 by `rate`: up if the expert's load in sums [2E+2] i64 is below the mean load,
// down if it is above.
void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate);

}  // namespace slimexx::ops

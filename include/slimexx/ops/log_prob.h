// Log-probabilities: log-softmax of logits / temperature in f32 over the vocabulary without padding
// (N9).
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// (scratch) In place over logits[R,V] f32 (strided): logits /= temperature, then the log-normaliser
// log sum exp of each row into lse[R]. Sampling and training both report log p(v) = logits[r,v] -
// lse[r], one subtraction.
void normalize_logits(const Context& ctx, Tensor logits, Tensor lse, float temperature);
// lse[R] for rows split over V leaves of the vocabulary, from the lse of each leaf, leaves[V,R]: m
// + log(sum of exp(leaf - m)), with m the largest leaf and the sum in ascending order.
void merge_lse(const Context& ctx, Tensor lse, Tensor leaves);
// (scratch) log_probs[R] = logits[r, targets[r]] - lse[r]; 0 if the target is -1, which means a
// token outside these columns (in another leaf of the vocabulary). entropies[R] = -sum p log p over
// these columns (may be undefined).
void gather_log_probs(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor logits,
                      Tensor lse, Tensor targets);
// dlogits[R,V] in the compute dtype: the gradient of sum_r dlog_probs[r]*log_probs[r] +
// dentropies[r]*entropies[r] with respect to the raw logits before the temperature. dlogits may be
// logits itself if the compute dtype is f32. dentropies and entropies may be undefined. A target of
// -1 matches none of these columns.
//   dlogits = (dlp * (1_target - p) - dH * p * (log p + H)) / temperature
void log_probs_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                        Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                        float temperature);

// The three operations above without logits in memory, on devices that support this. The product of
// hidden[R,H] and the vocabulary's weights w[V,H] is computed twice, in forward and in backward, or
// its logits are kept in between. The bits are those of matmul_forward into f32 logits followed by
// the ops above. CUDA only.
bool fuses_lm_head(tensor::Device device);
// (scratch) log_probs, lse [R]; entropies [R] may be undefined. If `logits` [R,V] f32 is given, it
// receives the raw logits for lm_head_kept_backward.
void lm_head_forward(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor lse,
                     Tensor hidden, Tensor w, Tensor targets, float temperature,
                     Tensor logits = {});
bool can_keep_logits(Tensor w);  // lm_head_forward accepts `logits`; V and H must be multiples of 8
// (scratch) dlogits[R,V] of the compute dtype; entropies and dentropies as in log_probs_backward.
void lm_head_backward_logits(const Context& ctx, Tensor dlogits, Tensor hidden, Tensor w,
                             Tensor lse, Tensor targets, Tensor entropies, Tensor dlog_probs,
                             Tensor dentropies, float temperature);
// Like lm_head_backward_logits, with the same bits, from kept logits. dlogits may lie in the first
// halves of the rows of `logits`.
void lm_head_kept_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                           Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature);

}  // namespace slimexx::ops

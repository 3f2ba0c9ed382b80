// The CUDA backend: the ops of ops.h on checked operands, queued on stream.handle. Each turns
// tensors into the plain arguments of a kernel family (include/slimexx/kernels) and checks what its
// launch returns. Those that take scratch are called on planning streams too.
#pragma once
#include "slimexx/ops/ops.h"
#include "slimexx/ops/policy_loss.h"

namespace slimexx::ops::cuda {

// An op that CUDA has only as part of a fused one.
[[noreturn]] void missing(const char* op);

void matmul_forward(Stream stream, Tensor y, Tensor x, Tensor w, Tensor bias);
bool fuses_swiglu(const Tensor& w);  // [2F,K]: matmul_swiglu_forward takes it
void matmul_swiglu_forward(Stream stream, Tensor h, Tensor x, Tensor w, Tensor bias);
void matmul_backward_input(Stream stream, Tensor dx, Tensor dy, Tensor w, bool accumulate);
void matmul_backward_weight(Stream stream, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate);

void rms_norm_forward(Stream stream, Tensor y, Tensor x, Tensor w, float eps);
void add_rms_norm_forward(Stream stream, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps);
void rms_norm_backward(Stream stream, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate);
void qk_norm_rotary_forward(Stream stream, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads);
void qk_norm_rotary_backward(Stream stream, Tensor d, Tensor dq_norm, Tensor dk_norm, Tensor raw,
                             Tensor q_norm, Tensor k_norm, float eps, const RotaryTable& rotary,
                             Tensor positions, const QkvHeads& heads);

void attention_forward(Stream stream, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v,
                       const AttentionLayout& layout, float scale);
void attention_backward(Stream stream, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale);

void swiglu_forward(Stream stream, Tensor h, Tensor gate_up);
void swiglu_backward(Stream stream, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up);
void add(Stream stream, Tensor y, Tensor a, Tensor b);
void add_scaled(Stream stream, Tensor y, Tensor x, float factor);
void scale(Stream stream, Tensor y, float factor);
void fill_zero(Stream stream, Tensor y);
void copy(Stream stream, Tensor y, Tensor x);
void gather_rows(Stream stream, Tensor y, Tensor x, Tensor rows);
void scatter_add_rows(Stream stream, Tensor dx, Tensor dy, Tensor rows);
void embedding_backward(Stream stream, Tensor dtable, Tensor dy, Tensor tokens);

void normalize_logits(Stream stream, Tensor logits, Tensor lse, float temperature);
void gather_log_probs(Stream stream, Tensor log_probs, Tensor entropies, Tensor logits, Tensor lse,
                      Tensor targets);
void log_probs_backward(Stream stream, Tensor dlogits, Tensor logits, Tensor lse, Tensor targets,
                        Tensor entropies, Tensor dlog_probs, Tensor dentropies, float temperature);
void lm_head_forward(Stream stream, Tensor log_probs, Tensor entropies, Tensor lse, Tensor hidden,
                     Tensor w, Tensor targets, float temperature, Tensor logits);
void lm_head_backward_logits(Stream stream, Tensor dlogits, Tensor hidden, Tensor w, Tensor lse,
                             Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                             float temperature);
void lm_head_kept_backward(Stream stream, Tensor dlogits, Tensor logits, Tensor lse, Tensor targets,
                           Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature);
void sample_tokens(Stream stream, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens);
void resolve_tokens(Stream stream, Tensor tokens, Tensor sampled);
void hand_out_samples(Stream stream, int32_t* host_tokens, float* host_log_probs, Tensor tokens,
                      Tensor log_probs);

void adamw_ranges(Stream stream, Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq,
                  Tensor gradient, std::span<const DecayRange> ranges, const AdamWStep& step);
double sum_of_squares(Stream stream, Tensor x, std::span<const ElementRange> ranges);
void policy_loss(Stream stream, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options);

}  // namespace slimexx::ops::cuda

// The CUDA backend: the ops on checked operands, queued on the context's stream. Each op turns
// tensors into the plain arguments of a kernel family (include/slimexx/kernels) and checks the
// launch. Ops with scratch are called in planning too.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/kernels/draft_rows.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/float8.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/optimizer.h"
#include "slimexx/ops/peer_rows.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/ops/router.h"
#include "slimexx/ops/router_balance.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::ops::cuda {

// Throws for an op that CUDA supports only as part of a fused op.
[[noreturn]] void missing(const char* op);

void matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor bias);
void quantise_rows(const Context& ctx, Tensor values, Tensor scales, Tensor x);
void quantise_blocks(const Context& ctx, const QuantisedBlocks& blocks);
bool fp8_matmul_quantises(const Tensor& x);  // whether FP8 products may read x[T,K] in bf16
// x as quantise_rows stores it, or x itself without scales.
void fp8_matmul_forward(const Context& ctx, Tensor y, Tensor x_values, Tensor x_scales,
                        const Linear& w);
void fp8_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x_values, Tensor x_scales,
                               const Linear& w);
void fp8_expert_matmul_forward(const Context& ctx, Tensor y, Tensor x_values, Tensor x_scales,
                               const Linear& w, const RoutedRows& routed, bool follows_product);
void fp8_expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x_values,
                                      Tensor x_scales, const Linear& w, const RoutedRows& routed);
bool fuses_swiglu(const Tensor& w);  // whether matmul_swiglu_forward supports w[2F,K]
void matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w, Tensor bias);
void matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w, bool accumulate);
void matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x,
                            bool accumulate);

void rms_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, float eps);
void layer_norm_forward(const Context& ctx, Tensor y, Tensor x, Tensor w, Tensor b, float eps);
void add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor branch,
                          Tensor branch_norm, Tensor w, float eps);
void rms_norm_backward(const Context& ctx, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w,
                       float eps, bool accumulate);
void qk_norm_rotary_forward(const Context& ctx, Tensor out, Tensor in, Tensor q_norm, Tensor k_norm,
                            float eps, const RotaryTable& rotary, Tensor positions,
                            const KvSlots& kv, const QkvHeads& heads);
void qk_norm_rotary_backward(const Context& ctx, Tensor d, Tensor dq_norm, Tensor dk_norm,
                             Tensor raw, Tensor q_norm, Tensor k_norm, float eps,
                             const RotaryTable& rotary, Tensor positions, const QkvHeads& heads);

void attention_forward(const Context& ctx, Tensor out, Tensor lse, Tensor q, const CacheRows& k,
                       const CacheRows& v, const AttentionLayout& layout, float scale);
void attention_backward(const Context& ctx, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q,
                        Tensor k, Tensor v, Tensor out, Tensor lse, const AttentionLayout& layout,
                        float scale);

void index_scores(const Context& ctx, Tensor scores, Tensor q, Tensor weights, const CacheRows& k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale);
void select_keys(const Context& ctx, Tensor selected, Tensor scores, const AttentionLayout& layout,
                 int64_t first_row);

// Writes rows [T,heads,D] of keys only.
void write_kv_pages(const Context& ctx, Tensor pages, Tensor rows, Tensor slots);

void rotate_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                         int64_t width, const RotaryTable& table, Tensor positions, bool inverse);
void latent_rows_forward(const Context& ctx, Tensor latent, Tensor raw, Tensor norm, float eps,
                         const RotaryTable& table, Tensor positions, const LatentSlots& kv,
                         const NormedRows& queries);
void round_keys(const Context& ctx, Tensor keys, const CacheRows& pages, Tensor slots);
void round_latent_rows(const Context& ctx, Tensor latent, int64_t rank, Tensor pages, Tensor slots);
void head_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w);
void head_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w);
void latent_queries_forward(const Context& ctx, Tensor queries, Tensor nope, Tensor w, Tensor rope,
                            const RotaryTable& table, Tensor positions);
void copy_head_columns(const Context& ctx, Tensor y, int64_t begin, Tensor x, int64_t x_begin,
                       int64_t width);
void sum_head_columns(const Context& ctx, Tensor y, Tensor x, int64_t x_begin);

void swiglu_forward(const Context& ctx, Tensor h, Tensor gate_up);
void swiglu_backward(const Context& ctx, Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up);
void add(const Context& ctx, Tensor y, Tensor a, Tensor b);
void add_scaled(const Context& ctx, Tensor y, Tensor x, float factor);
void scale(const Context& ctx, Tensor y, float factor);
void fill_zero(const Context& ctx, Tensor y);
void copy(const Context& ctx, Tensor y, Tensor x);
void copy_rows(const Context& ctx, Tensor y, Tensor x);
void gather_rows(const Context& ctx, Tensor y, Tensor x, Tensor rows);
void scatter_add_rows(const Context& ctx, Tensor dx, Tensor dy, Tensor rows);

int64_t peer_runs_bytes(int64_t copies, int64_t ranks);
void show_rows(const Context& ctx, const PeerRuns& runs, Tensor offsets, const PeerRows& rows);
void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y, bool of_second);
void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y);
void fetch_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
void return_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
void await_peer_rows(const Context& ctx);
void gather_elements(const Context& ctx, Tensor y, Tensor x, Tensor indices);
void embedding_shard_forward(const Context& ctx, Tensor y, Tensor table, Tensor tokens,
                             int64_t first);
void embedding_backward(const Context& ctx, Tensor dtable, Tensor dy, Tensor tokens);

void normalize_logits(const Context& ctx, Tensor logits, Tensor lse, float temperature);
void merge_lse(const Context& ctx, Tensor lse, Tensor leaves);
void gather_log_probs(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor logits,
                      Tensor lse, Tensor targets);
void log_probs_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                        Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                        float temperature);
void lm_head_forward(const Context& ctx, Tensor log_probs, Tensor entropies, Tensor lse,
                     Tensor hidden, Tensor w, Tensor targets, float temperature, Tensor logits);
void lm_head_backward_logits(const Context& ctx, Tensor dlogits, Tensor hidden, Tensor w,
                             Tensor lse, Tensor targets, Tensor entropies, Tensor dlog_probs,
                             Tensor dentropies, float temperature);
void lm_head_kept_backward(const Context& ctx, Tensor dlogits, Tensor logits, Tensor lse,
                           Tensor targets, Tensor entropies, Tensor dlog_probs, Tensor dentropies,
                           float temperature);
void sample_tokens(const Context& ctx, Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens);
// In place, with the temperature of each row.
void normalize_sampled_logits(const Context& ctx, Tensor logits, Tensor lse, Tensor rows);
void fill_sampled_tokens(const Context& ctx, Tensor tokens, Tensor sampled);
void copy_samples_to_host(const Context& ctx, int32_t* host_tokens, float* host_log_probs,
                          Tensor tokens, Tensor log_probs);
void advance_drafts(const Context& ctx, const kernels::DraftRows& rows);

void route_forward(const Context& ctx, Tensor ids, Tensor weights, Tensor logits, Tensor bias,
                   const RouterRule& rule);
void route_backward(const Context& ctx, Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule);
void count_choices(const Context& ctx, Tensor counts, Tensor sums, Tensor ids,
                   const PackedSequences& sequences);
void balance_router(const Context& ctx, Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance);
void move_router_bias(const Context& ctx, Tensor bias, Tensor sums, float rate);
void sort_by_expert(const Context& ctx, const RoutedRows& routed, Tensor ids);
void choose_copies(const Context& ctx, Tensor copies, Tensor ids, std::span<const int32_t> table);
bool fuses_route_and_sort(const Tensor& ids,
                          const RouterRule& rule);  // whether route_and_sort supports them
void route_and_sort(const Context& ctx, const RoutedRows& routed, Tensor ids, Tensor weights,
                    Tensor logits, Tensor bias, const RouterRule& rule);
void combine_add_rms_norm(const Context& ctx, const ResidualNorm& residual, Tensor rows,
                          Tensor weights, Tensor shared, const RoutedRows& routed);
void combine_rows(const Context& ctx, Tensor y, Tensor rows, Tensor weights, Tensor shared,
                  const RoutedRows& routed);
void expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, Tensor w,
                           const RoutedRows& routed, Tensor shared_w, bool follows_product);
bool fuses_expert_swiglu(
    const Tensor& w);  // whether expert_matmul_swiglu_forward supports w[E,2F,K]
void expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, Tensor w,
                                  const RoutedRows& routed, Tensor shared_w);
void expert_matmul_backward_input(const Context& ctx, Tensor dx, Tensor dy, Tensor w,
                                  const RoutedRows& routed);
void expert_matmul_backward_weight(const Context& ctx, Tensor dw, Tensor dy, Tensor x,
                                   const RoutedRows& routed, bool accumulate);
void expert_swiglu_backward(const Context& ctx, Tensor dweights, Tensor h, Tensor gate_up,
                            Tensor dh, Tensor weights, const RoutedRows& routed);

void adamw_ranges(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg,
                  Tensor exp_avg_sq, Tensor gradient, std::span<const DecayRange> ranges,
                  const AdamWStep& step);
double sum_of_squares(const Context& ctx, Tensor x, std::span<const ElementRange> ranges);
void policy_loss(const Context& ctx, Tensor dlog_probs, Tensor dentropies, Tensor metrics,
                 const PolicyLossRows& rows, const PolicyLossOptions& options);

}  // namespace slimexx::ops::cuda

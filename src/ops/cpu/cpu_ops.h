// The CPU backend: the ops of include/slimexx/ops on checked operands. Work runs immediately on the
// thread pool, split over outputs only; scratch is per thread and kept (scratch.h).
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/float8.h"
#include "slimexx/ops/heads.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/optimizer.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/ops/router.h"
#include "slimexx/ops/router_balance.h"
#include "slimexx/ops/sampling.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::ops::cpu {

void matmul_forward(Tensor y, Tensor x, Tensor w, Tensor bias);
void matmul_backward_input(Tensor dx, Tensor dy, Tensor w, bool accumulate);
void matmul_backward_weight(Tensor dw, Tensor dbias, Tensor dy, Tensor x);

void quantise_rows(Tensor values, Tensor scales, Tensor x);
// y[T,K] = the values that quantise_rows stores, times their scales.
void round_rows(Tensor y, Tensor x);
void quantise_blocks(const QuantisedBlocks& blocks);
// plain[N,K] = values[N,K] times scales [N/r, K/c] for any block size r x c that divides [N,K].
void dequantise_blocks(Tensor plain, Tensor values, Tensor scales);

// x [T,H] or [T,heads,D]: the last dimension is normalised.
void norm_forward(Tensor y, Tensor x, Tensor w, float eps);
void layer_norm_forward(Tensor y, Tensor x, Tensor w, Tensor b, float eps);
void norm_backward(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w, float eps, bool accumulate);

// Rotates elements of every head from `first` on.
void rotary(Tensor x, Tensor cos, Tensor sin, Tensor positions, RotaryStyle style, bool inverse,
            int64_t first = 0);

void attention_forward(Tensor out, Tensor lse, Tensor q, const CacheRows& k, const CacheRows& v,
                       const AttentionLayout& layout, float scale);
void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor q, Tensor k, Tensor v,
                        Tensor out, Tensor lse, const AttentionLayout& layout, float scale);
void index_scores(Tensor scores, Tensor q, Tensor weights, const CacheRows& k,
                  const AttentionLayout& layout, int64_t first_row, int64_t top_k, float scale);
void select_keys(Tensor selected, Tensor scores, const AttentionLayout& layout, int64_t first_row);
void write_kv_pages(Tensor k_pages, Tensor v_pages, Tensor k, Tensor v, Tensor slots);
void round_keys(Tensor keys, const CacheRows& pages, Tensor slots);
void round_latent_rows(Tensor latent, int64_t rank, Tensor pages, Tensor slots);

void swiglu_forward(Tensor h, Tensor gate_up);
void swiglu_backward(Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up);
void add(Tensor y, Tensor a, Tensor b);
void add_scaled(Tensor y, Tensor x, float factor);
void scale(Tensor y, float factor);
void fill_zero(Tensor y);
void copy(Tensor y, Tensor x);
void copy_rows(Tensor y, Tensor x);

// gather_rows is also the embedding, y[i] = table[rows[i]]; scatter_add_rows is its transpose, rows
// ascending.
void gather_rows(Tensor y, Tensor x, Tensor rows);
void embedding_shard_forward(Tensor y, Tensor table, Tensor tokens, int64_t first);
void scatter_add_rows(Tensor dx, Tensor dy, Tensor rows);
void gather_elements(Tensor y, Tensor x, Tensor indices);

void route_forward(Tensor ids, Tensor weights, Tensor logits, Tensor bias, const RouterRule& rule);
void route_backward(Tensor dlogits, Tensor dweights, Tensor ids, Tensor logits,
                    const RouterRule& rule);
void count_choices(Tensor counts, Tensor sums, Tensor ids, const PackedSequences& sequences);
void balance_router(Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance);
void move_router_bias(Tensor bias, Tensor sums, float rate);
void head_matmul_forward(Tensor y, Tensor x, Tensor w);
void head_matmul_backward_input(Tensor dx, Tensor dy, Tensor w);
void copy_head_columns(Tensor y, int64_t begin, Tensor x, int64_t x_begin, int64_t width);
void sum_head_columns(Tensor y, Tensor x, int64_t x_begin);
void sort_by_expert(const RoutedRows& routed, Tensor ids);
void choose_copies(Tensor copies, Tensor ids, std::span<const int32_t> table);
void combine_rows(Tensor y, Tensor rows, Tensor weights, Tensor shared, const RoutedRows& routed);
void expert_matmul_forward(Tensor y, Tensor x, Tensor w, const RoutedRows& routed);
void expert_matmul_backward_input(Tensor dx, Tensor dy, Tensor w, const RoutedRows& routed);
void expert_matmul_backward_weight(Tensor dw, Tensor dy, Tensor x, const RoutedRows& routed,
                                   bool accumulate);
void expert_swiglu_backward(Tensor dweights, Tensor h, Tensor gate_up, Tensor dh, Tensor weights,
                            const RoutedRows& routed);

void normalize_logits(Tensor logits, Tensor lse, float temperature);
void merge_lse(Tensor lse, Tensor leaves);
void gather_log_probs(Tensor log_probs, Tensor entropies, Tensor logits, Tensor lse,
                      Tensor targets);
void log_probs_backward(Tensor dlogits, Tensor logits, Tensor lse, Tensor targets, Tensor entropies,
                        Tensor dlog_probs, Tensor dentropies, float temperature);

void sample_tokens(Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens, int64_t leaves);
void fill_sampled_tokens(Tensor tokens, Tensor sampled);

void adamw(Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq, Tensor gradient,
           const AdamWStep& step);
double sum_of_squares(Tensor x);

}  // namespace slimexx::ops::cpu

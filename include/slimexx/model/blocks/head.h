// The head: final norm and vocabulary projection of selected rows, in chunks of rows so that at
// most max_logits_bytes of logits, or of their gradient, are held. Training and sampling both call
// normalize_logits, so their log-probs have the same bits (N9).
//
// Legend: T packed tokens, H hidden size, V vocabulary, R selected rows; t and r: the tokens and
// selected rows on this tp rank.
//
// With tensor parallelism a rank has one leaf of the vocabulary and computes its logits, their
// log-sum-exp and their part of the entropy. Leaves are merged in order (ops::merge_lse). So no
// rank holds a whole row of logits, and n ranks give the same bits as one rank with n leaves (N6).
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/model/batch.h"
#include "slimexx/model/parameters.h"
#include "slimexx/ops/context.h"

namespace slimexx::model {

class ParameterList;

template <class T>
struct HeadParameters {
  T final_norm;  // [H]
  T lm_head;     // [V,H]; the embedding's if tied
};

struct HeadSpec {
  int64_t hidden_size = 0, vocab_size = 0;
  double rms_norm_eps = 1e-6;
  int64_t leaves = 1;  // leaves of the vocabulary on this rank
};

// The rows that predict. Every tp rank gets the log-probs of all of them.
struct HeadRows {
  Tensor rows;     // [r] i32, rows of this rank's residual stream
  Tensor targets;  // [R] i32, the next tokens; with tensor parallelism their indices in this rank's
                   // leaf of the vocabulary, or -1 if another rank's leaf has them
  std::span<const dist::Range> tp_ranges = {};  // by tp rank, its part of R; empty: one tp rank
};

struct HeadOptions {
  float temperature = 1.0f;
  int64_t max_logits_bytes = int64_t{64} << 20;
};
int64_t head_chunk_rows(const HeadSpec& spec, const HeadOptions& options);

// The tensors that the head's backward needs; head_forward allocates them from the context's arena.
struct HeadTape {
  Tensor x;       // [r,H] gathered residual rows
  Tensor hidden;  // [R,H] after the final norm, of all tp ranks
  Tensor logits;  // [R,V] f32, kept only if R fits one chunk: normalised, or raw if the product is
                  // fused
  Tensor lse = {};  // [R]
};

// `tied_to`: the embedding's id, or kNoParameter if the head has its own matrix.
HeadParameters<ParameterId> declare(ParameterList& list, const HeadSpec& spec, ParameterId tied_to);
void check_device_sizes(const HeadSpec& spec, tensor::Device device);
double forward_flops(const HeadSpec& spec, int64_t num_tokens);

// x[t,H] from Decoder::forward. Writes log_probs[R] and, if defined, entropies[R]. `tape` null:
// nothing is kept.
void head_forward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                  Tensor x, const HeadRows& rows, const HeadOptions& options, Tensor log_probs,
                  Tensor entropies, HeadTape* tape);
// Given dlog_probs[R] and dentropies[R] (may be undefined), writes dx[t,H] (zero in rows that were
// not selected) and adds to the norm's gradient. The matrix's gradient is added to if `accumulate`,
// overwritten otherwise, and skipped if undefined.
void head_backward(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   const HeadParameters<Tensor>& g, const HeadRows& rows,
                   const HeadOptions& options, const HeadTape& tape, Tensor entropies,
                   Tensor dlog_probs, Tensor dentropies, Tensor dx, bool accumulate);

// For generation: raw logits[R,V] f32 for the rows[R] (i32) of x[T,H], allocated from the context's
// arena. x has the rows of all tp ranks (gather_tp_rows). The tp ranks all-gather their leaves of
// the logits, so every rank has whole rows.
Tensor head_logits(const ops::Context& ctx, const HeadSpec& spec, const HeadParameters<Tensor>& w,
                   Tensor x, Tensor rows);

}  // namespace slimexx::model

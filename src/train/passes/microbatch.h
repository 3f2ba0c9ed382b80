// One microbatch on the device: the packed tokens, the rows whose next token is a response token,
// and the inputs of the loss. All tensors come from ctx.arena. All tp ranks of a model replica have
// the same samples. Legend: T packed tokens, R selected rows, S samples.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/context_shards.h"
#include "slimexx/model/decoder.h"
#include "slimexx/train/trainer.h"

namespace slimexx::train {

// With context parallelism tokens and rows are this rank's; the loss covers the rows of all ranks.
struct Microbatch {
  std::vector<int32_t> cu_seqlens;              // for the attention layout, host
  std::vector<int32_t> cu_rows;                 // [S+1] for the loss, host
  std::vector<dist::Range> tp_rows, tp_ranges;  // of T and of R, by tp rank; empty if tp is 1
  // For the batch's own_sequences, host.
  std::vector<int32_t> own_cu_seqlens, sequence_lengths;
  model::Batch batch;
  model::HeadRows head_rows;
  tensor::Tensor device_cu_rows;  // [S+1] i32, on CUDA only
  int64_t num_tokens = 0;         // on this rank
  int64_t num_rows = 0;           // for the loss
  int64_t num_own_rows = 0;       // part of num_rows on this cp rank
  // Context parallelism; host. The tokens are those of cp rank `context_rank`.
  int context_rank = 0;
  std::vector<int32_t> context_lens, key_starts;
  std::vector<int32_t> cu_sequences;  // of whole sequences
  model::ContextShards token_shards, row_shards;
  std::vector<dist::Range> token_ranges, row_ranges;  // of both shards, by cp rank
  model::ContextRows loss_rows;                       // R of all ranks
};

std::vector<int64_t> lengths_of(std::span<const Sample> samples);  // in tokens
// Tokens of the samples `indices`, summed.
int64_t count_tokens(std::span<const Sample> samples, std::span<const int64_t> indices);

// Packs the samples `indices` one after another. A planning context measures the sizes of rank
// `measured` and ignores the tokens. The address of `out` must not change afterwards.
void build_microbatch(const ops::Context& ctx, int64_t vocab_size, std::span<const Sample> samples,
                      std::span<const int64_t> indices, MeasuredRank measured, Microbatch& out);

// `rows` ascend. `tp_rows` is the batch's. Fills `tp_ranges`, to which the result refers.
model::HeadRows make_head_rows(const ops::Context& ctx, int64_t vocab_size,
                               std::span<const dist::Range> tp_rows,
                               const std::vector<int32_t>& rows,
                               const std::vector<int32_t>& targets,
                               std::vector<dist::Range>& tp_ranges);

// Concatenates a per-token vector of the samples into a device tensor [R]. Undefined if the first
// sample lacks the field (either all samples have it or none). Without samples: defined and empty.
tensor::Tensor upload_rows(const ops::Context& ctx, const Microbatch& microbatch,
                           std::span<const Sample> samples, std::span<const int64_t> indices,
                           std::vector<float> Sample::*field);

}  // namespace slimexx::train

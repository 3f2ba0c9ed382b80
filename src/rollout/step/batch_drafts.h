// The rows of a staged batch for drafts of an MTP layer: the inputs that its first pass reads
// besides the batch, and the further passes, which draft more tokens for each sequence.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/scheduling/scheduler.h"
#include "rollout/step/batch_memory.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {

// Rows of a batch that one head call samples from. Views of the builder's memory.
struct SamplingGroup {
  tensor::Tensor rows;             // [R] i32, rows of the batch
  tensor::Tensor parameters;       // [R, 48] U8, ops::SamplingRow
  tensor::Tensor tokens;           // [R] i32, written by sampling
  tensor::Tensor log_probs;        // [R] f32, written by sampling
  int32_t* host_tokens = nullptr;  // [R] in host memory, for copy_samples_to_host
  float* host_log_probs = nullptr;
};

struct SampledRows {
  tensor::Tensor parameters;  // [R,48] U8
  const StagedArray &tokens, &log_probs;
  int64_t num_rows = 0, first_token = 0;  // first_token: offset in tokens
};
// Cuts `sampled` into groups of at most `max_rows` rows; `rows` has the rows of the batch.
void cut_groups(const StagedArray& rows, const SampledRows& sampled, int64_t max_rows,
                std::vector<SamplingGroup>& groups);

// Three parts of staging: the tokens that follow those of a chunk, as far as they are known; row
// `row` of the samples, which row `batch_row` of the batch computes; and a padding row.
void stage_next_tokens(const DraftArrays& arrays, const Chunk& chunk, int64_t first_row);
void stage_draft_sample(const DraftArrays& arrays, const ops::SamplingRow& parameters, int64_t row,
                        int32_t batch_row);
void pad_draft_row(const DraftArrays& arrays, int64_t row);

class DraftRows {
 public:
  // All arguments are borrowed. `batch` is the builder's batch, rebuilt for each step.
  DraftRows(const BatchLimits& limits, const BatchMemory& memory, const model::Batch& batch)
      : limits_(limits), memory_(memory), batch_(batch) {}

  struct Step {
    bool makes_drafts = false, decodes = false;
    int64_t num_sequences = 0, num_sampled_rows = 0;  // padding included
  };
  // Stages the further passes. Call after staging the samples of a step.
  void stage(std::span<const Chunk> chunks, const Step& step);
  int64_t num_passes() const;  // passes that draft in this step
  // The rows of group_samples, with parameters, tokens and log-probs for drafting the token after
  // the sampled one. Empty if no drafts are made.
  const std::vector<SamplingGroup>& group_drafts(int64_t max_rows);
  // Whether further passes draft more tokens; only for batches of one token per row. On a GPU each
  // further pass has as many rows as the batch: first one per sequence, then idle rows. If no more
  // tokens are drafted, each has one idle row, because ranks run every pass together. On the CPU no
  // row is idle.
  bool guesses_further() const { return guesses_further_; }
  tensor::Tensor chain_cu_seqlens() const;
  ops::DraftPass checked_pass() const;  // the batch's own pass, as input of the first further pass
  ops::CheckedDrafts checked_drafts() const;
  ops::DraftPages draft_pages() const;
  tensor::Tensor drafts_of_pass(int64_t pass) const;  // [R] i32; passes count from 0
  // Like group_drafts, for a later pass with its own parameters [R,48] U8.
  const std::vector<SamplingGroup>& group_chain(int64_t max_rows, int64_t pass,
                                                tensor::Tensor parameters);
  // [T] i32, by row of the batch: the token after the row, or ~r if row r of the samples will hold
  // it.
  tensor::Tensor next_tokens() const;
  tensor::Tensor sampled_now() const { return memory_.batch().sampled_tokens.device; }

 private:
  const BatchLimits& limits_;
  const BatchMemory& memory_;
  const model::Batch& batch_;
  Step step_;
  bool guesses_further_ = false;
  int64_t num_chain_rows_ = 0;  // of the further passes
  std::vector<SamplingGroup> groups_;
};

}  // namespace slimexx::rollout

// Turns the chunks of a step into the model's inputs: tokens, positions, slots, page tables and the
// rows to sample from. Everything is staged in BatchMemory and uploaded in one copy.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/scheduling/scheduler.h"
#include "rollout/step/batch_drafts.h"
#include "rollout/step/batch_memory.h"
#include "slimexx/model/decoder.h"

namespace slimexx::rollout {

// A batch of the maximum size without memory, for planning the memory of a step.
struct LargestBatch {
  std::vector<int32_t> cu_seqlens;  // referenced by the batch's attention layout
  model::Batch batch;
};
LargestBatch make_largest_batch(tensor::Device device, const BatchLimits& limits,
                                std::span<const model::LayerPages> layer_pages);

// The samples of a step, on their way to the host.
struct StepSamples {
  std::vector<Sequence*> sampled;  // by row; null: the sample is dropped
  std::vector<int64_t> drafts;     // by row: Chunk::draft
  bool has_drafts() const { return !drafts.empty() && drafts.back() > 0; }  // draft rows come last
  // By row; valid once is_ready has passed.
  const int32_t* tokens = nullptr;
  const float* log_probs = nullptr;
  // Draft tokens [num_draft_passes, draft_stride]. Pass 0: row r holds the draft of the token after
  // row r's sample. Later passes have one row per sequence and draft the tokens after its last
  // accepted draft.
  const int32_t* draft_tokens = nullptr;
  int64_t num_draft_passes = 0, draft_stride = 0;
  tensor::Event is_ready;
};

class BatchBuilder {
 public:
  BatchBuilder(tensor::Device device, const BatchLimits& limits)
      : limits_(limits), memory_(device, limits), drafts_(limits_, memory_, batch_) {}

  // Stages and uploads a step and its sampling rows; work queued on `stream` afterwards sees them.
  // The result is valid until the next call. The step before the last must be finished: its set is
  // overwritten. Tokens below 0 are staged as they are, for fill_sampled_tokens. Chunks are sorted
  // by ascending number of tokens, and so are the sequences in sampled(). `makes_drafts`: draft the
  // following tokens if there is an MTP layer.
  const model::Batch& build(tensor::Stream stream, std::span<const Chunk> shares,
                            std::span<const model::LayerPages> layer_pages,
                            bool makes_drafts = false);
  // Like build(), for chunks of one token each, all of them sampled, padded with empty sequences.
  // Apart from the contents of its arrays, the batch depends on the shape only.
  struct DecodeShape {
    int64_t num_sequences = 0, max_key_len = 0;
    bool has_drafts = false, makes_drafts = false;
    auto operator<=>(const DecodeShape&) const = default;
  };
  const model::Batch& build_decode(tensor::Stream stream, std::span<const Chunk> chunks,
                                   std::span<const model::LayerPages> layer_pages,
                                   const DecodeShape& shape);
  // The sampling rows of the last build, in the order of sampled(), in groups of at most `max_rows`
  // rows. After build_decode there is one group, as large as its shape.
  const std::vector<SamplingGroup>& group_samples(int64_t max_rows);
  // The rows of the last build for drafts of an MTP layer.
  DraftRows& drafts() { return drafts_; }
  std::span<Sequence* const> sampled() const { return samples_[current_set()].sampled; }
  size_t current_set() const { return memory_.current_set(); }
  // The samples of the step before, [max_sequences] i32 on the device.
  tensor::Tensor sampled_before() const { return memory_.sampled_before(); }
  // The samples of sampled(), ready when all work queued on the stream is done. Valid until the
  // build after the next.
  StepSamples& await_samples(tensor::Stream stream);
  int64_t memory_bytes() const { return memory_.memory_bytes(); }

 private:
  void stage_chunks(std::span<const Chunk> chunks, int64_t table_width);
  void stage_samples(std::span<const Chunk> chunks);

  const BatchLimits limits_;
  BatchMemory memory_;
  DraftRows drafts_;
  std::array<StepSamples, BatchMemory::kNumSets> samples_;  // by set
  int64_t num_sampled_rows_ = 0;                            // rows of sampled(), and padding
  std::vector<Chunk> sorted_;
  std::vector<SamplingGroup> groups_;
  model::Batch batch_;
};

}  // namespace slimexx::rollout

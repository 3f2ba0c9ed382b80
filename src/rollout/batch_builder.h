// Turns the shares of a step into what the model reads: tokens, positions, slots and page tables,
// and the rows to sample from. All memory is taken at construction.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/scheduler.h"
#include "slimexx/model/transformer.h"

namespace slimexx::rollout {

struct BatchLimits {
  int64_t max_tokens = 0, max_sequences = 0;  // of a batch
  int64_t max_pages = 0, page_tokens = 0;     // of a sequence; of a page
};

// Sequences that are sampled at one temperature; a head takes only one. Views of the builder's
// memory.
struct SamplingGroup {
  float temperature = 1.0f;
  tensor::Tensor rows;       // [R] i32, rows of the batch
  tensor::Tensor tokens;     // [R] i32, written by sampling
  tensor::Tensor log_probs;  // [R] f32, likewise
  std::span<const ops::SamplingRow> parameters;
  std::span<Sequence* const> sequences;
};

class BatchBuilder {
 public:
  BatchBuilder(tensor::Device device, const BatchLimits& limits);

  // Valid until the next call.
  const model::Batch& build(std::span<const Chunk> chunks,
                            std::span<const model::LayerPages> layer_pages);
  // By ascending temperature; no group has more than `max_rows` rows.
  const std::vector<SamplingGroup>& group_samples(std::span<const Chunk> chunks, int64_t max_rows);
  // A batch as large as any, of zeros, to plan memory with.
  const model::Batch& build_largest(std::span<const model::LayerPages> layer_pages);
  int64_t memory_bytes() const { return buffer_.size_bytes(); }

 private:
  void append_chunk(const Chunk& chunk, int32_t* page_row, int64_t first_row);
  void finish_batch(int64_t num_tokens, int64_t table_width,
                    std::span<const model::LayerPages> layer_pages);

  BatchLimits limits_;
  tensor::Buffer buffer_;
  tensor::Tensor tokens_, positions_, slots_;                 // [max_tokens] i32
  tensor::Tensor page_table_;                                 // [max_sequences * max_pages] i32
  tensor::Tensor rows_, sampled_tokens_, sampled_log_probs_;  // [max_sequences]
  std::vector<int32_t> cu_seqlens_, context_lens_;
  std::vector<std::pair<int32_t, Sequence*>> due_;  // row of the batch, sequence
  std::vector<ops::SamplingRow> parameters_;
  std::vector<Sequence*> due_sequences_;
  std::vector<SamplingGroup> groups_;
  model::Batch batch_;
};

}  // namespace slimexx::rollout

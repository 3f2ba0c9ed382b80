// Turns the chunks of a step into the model's inputs: tokens, positions, slots, page tables and the
// rows to sample from. Everything is staged in host memory and uploaded in one copy; all memory is
// allocated at construction. There are two sets of buffers, on host and device, used in turn: while
// one step is in flight the next is staged and uploaded. Addresses depend on the set only.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "rollout/scheduling/scheduler.h"
#include "slimexx/model/decoder.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {

struct BatchLimits {
  int64_t max_tokens = 0, max_sequences = 0;  // per batch
  int64_t max_pages = 0, page_tokens = 0;     // per sequence; per page
  int64_t num_mtp_drafts = 0;                 // passes of the MTP layer; they need more arrays
};

// Device memory of a builder with these limits.
int64_t plan_batch_bytes(const BatchLimits& limits);

// A batch of the maximum size without memory, for planning the memory of a step.
struct LargestBatch {
  std::vector<int32_t> cu_seqlens;  // referenced by the batch's attention layout
  model::Batch batch;
};
LargestBatch make_largest_batch(tensor::Device device, const BatchLimits& limits,
                                std::span<const model::LayerPages> layer_pages);

// An array in the current set, on the host and on the device.
struct StagedArray {
  char* host = nullptr;
  tensor::Tensor device;  // [capacity]
  int32_t* i32() const { return reinterpret_cast<int32_t*>(host); }
  float* f32() const { return reinterpret_cast<float*>(host); }
  tensor::Tensor as_sampling_rows() const {  // [R,48] U8
    constexpr auto kBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));
    return device.reshaped({device.dim(0) / kBytes, kBytes});
  }
};

// Rows of a batch that one head call samples from. Views of the builder's memory.
struct SamplingGroup {
  tensor::Tensor rows;             // [R] i32, rows of the batch
  tensor::Tensor parameters;       // [R, 48] U8, ops::SamplingRow
  tensor::Tensor tokens;           // [R] i32, written by sampling
  tensor::Tensor log_probs;        // [R] f32, written by sampling
  int32_t* host_tokens = nullptr;  // [R] in host memory, for hand_out_samples
  float* host_log_probs = nullptr;
};

// The samples of a step, on their way to the host.
struct StepSamples {
  std::vector<Sequence*> due;   // by row; null: the sample is dropped
  std::vector<int64_t> drafts;  // by row: Chunk::draft
  bool has_drafts() const { return !drafts.empty() && drafts.back() > 0; }  // draft rows come last
  // By row; valid once is_there has passed.
  const int32_t* tokens = nullptr;
  const float* log_probs = nullptr;
  // Draft tokens [num_draft_passes, draft_stride]. Pass 0: row r holds the draft of the token after
  // row r's sample. Later passes have one row per sequence and draft the tokens after its last
  // accepted draft.
  const int32_t* draft_tokens = nullptr;
  int64_t num_draft_passes = 0, draft_stride = 0;
  tensor::Event is_there;
};

class BatchBuilder {
 public:
  static constexpr int64_t kNumSets = 2;

  BatchBuilder(tensor::Device device, const BatchLimits& limits);
  BatchBuilder(const BatchBuilder&) = delete;
  BatchBuilder& operator=(const BatchBuilder&) = delete;

  // Stages and uploads a step and its sampling rows; work queued on `stream` afterwards sees them.
  // Valid until the next call. The step before the last must be finished: its set is overwritten.
  // Tokens below 0 are staged as they are, for resolve_tokens. Chunks are sorted by ascending
  // number of tokens, and so are the sequences in due(). `makes_drafts`: draft the following tokens
  // if there is an MTP layer.
  const model::Batch& build(tensor::Stream stream, std::span<const Chunk> shares,
                            std::span<const model::LayerPages> layer_pages,
                            bool makes_drafts = false);
  // The same for chunks of one token each, all of them sampled, padded with empty sequences. Apart
  // from the contents of its arrays, the batch depends on the shape only.
  struct DecodeShape {
    int64_t num_sequences = 0, max_key_len = 0;
    bool has_drafts = false, makes_drafts = false;
    auto operator<=>(const DecodeShape&) const = default;
  };
  const model::Batch& build_decode(tensor::Stream stream, std::span<const Chunk> chunks,
                                   std::span<const model::LayerPages> layer_pages,
                                   const DecodeShape& shape);
  // The sampling rows of the last build, in the order of due(), in groups of at most `max_rows`
  // rows. After build_decode there is one group, as large as its shape.
  const std::vector<SamplingGroup>& group_samples(int64_t max_rows);
  // The same rows, with parameters, tokens and log-probs for drafting the token after the sampled
  // one. Empty if no drafts are made.
  const std::vector<SamplingGroup>& group_drafts(int64_t max_rows);
  // Whether further passes draft more tokens; only for batches of one token per row. On a GPU each
  // such pass has as many rows as the batch, the sequences' own first and the others idle; without
  // further drafts it has one idle row, for ranks that run every pass together. On the CPU no row
  // is idle.
  bool guesses_further() const { return guesses_further_; }
  tensor::Tensor chain_cu_seqlens() const {
    return chain_cu_seqlens_.device.rows(0, num_chain_rows_ + 1);
  }
  ops::DraftPass checked_pass() const;  // the batch's own, as input of the first further pass
  ops::CheckedDrafts checked_drafts() const;
  ops::DraftPages draft_pages() const;
  tensor::Tensor drafts_of_pass(int64_t pass) const;  // [R] i32; passes count from 0
  // As group_drafts, for a later pass with its own parameters [R,48] U8.
  const std::vector<SamplingGroup>& group_chain(int64_t max_rows, int64_t pass,
                                                tensor::Tensor parameters);
  // [T] i32, by row of the batch: the token after the row, or ~r if row r of the samples will hold
  // it.
  tensor::Tensor next_tokens() const { return next_tokens_.device.rows(0, batch_.tokens.dim(0)); }
  tensor::Tensor sampled_now() const { return sampled_tokens_.device; }
  std::span<Sequence* const> due() const { return sets_[current_].samples.due; }
  size_t current_set() const { return current_; }
  // The samples of the step before, [max_sequences] i32 on the device.
  tensor::Tensor sampled_before() const { return sampled_[1 - current_]; }
  // The samples of due(), ready when all work queued on the stream is done. Valid until the build
  // after the next.
  StepSamples& await_samples(tensor::Stream stream);
  int64_t memory_bytes() const;

 private:
  void begin_set();
  void use_set(size_t index);
  void append_chunk(const Chunk& chunk, int32_t* page_row, int64_t first_row);
  void append_next_tokens(const Chunk& chunk, int64_t first_row);
  struct Sampled {
    tensor::Tensor parameters;  // [R,48] U8
    const StagedArray &tokens, &log_probs;
    int64_t num_rows = 0, first_token = 0;  // first_token: offset in tokens
  };
  const std::vector<SamplingGroup>& cut_groups(const Sampled& sampled, int64_t max_rows,
                                               std::vector<SamplingGroup>& groups);
  void stage_chunks(std::span<const Chunk> chunks, int64_t table_width);
  void stage_samples(std::span<const Chunk> chunks);
  void stage_chain(std::span<const Chunk> chunks, bool decodes, int64_t num_rows);
  void pad_decode(int64_t from, int64_t to);
  void upload_staged(tensor::Stream stream, int64_t num_table_entries);
  void finish_batch(int64_t num_tokens, int64_t table_width,
                    std::span<const model::LayerPages> layer_pages);

  struct Set {
    tensor::StagingBuffer host;
    tensor::Buffer device;
    tensor::Event is_uploaded;
    StepSamples samples;
  };
  struct Part {
    StagedArray* array;
    tensor::DType dtype;
    int64_t size, offset;  // elements, bytes
  };

  BatchLimits limits_;
  tensor::Stream copies_;
  std::array<Set, kNumSets> sets_;
  size_t current_ = 0;
  std::vector<Part> parts_;                     // the arrays below
  StagedArray cu_seqlens_, context_lens_;       // [max_sequences + 1], [max_sequences] i32
  StagedArray rows_, parameters_;               // [max_sequences] i32; [max_sequences * 48] U8
  StagedArray tokens_, positions_, slots_;      // [max_tokens] i32
  StagedArray next_tokens_, draft_parameters_;  // as tokens_ and parameters_, for drafts
  // For the further draft passes: [max_sequences] i32; chain_cu_seqlens [max_sequences + 1].
  StagedArray chain_cu_seqlens_, first_drafts_, num_drafts_, held_tokens_;
  StagedArray page_table_;                          // [max_sequences * max_pages] i32
  StagedArray sampled_tokens_, sampled_log_probs_;  // [max_sequences] i32, f32
  StagedArray draft_tokens_, draft_log_probs_;      // the same for drafts; tokens for every pass
  std::array<tensor::Tensor, kNumSets> sampled_;    // sampled_tokens_ on the device, for both sets
  int64_t num_sampled_rows_ = 0;                    // rows of due(), and padding
  bool makes_drafts_ = false, guesses_further_ = false;
  int64_t num_chain_rows_ = 0;
  std::vector<Chunk> sorted_;
  std::vector<SamplingGroup> groups_, draft_groups_;
  model::Batch batch_;
};

}  // namespace slimexx::rollout

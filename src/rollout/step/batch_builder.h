// Turns the shares of a step into what the model reads: tokens, positions, slots and page tables,
// and the rows to sample from. Everything is staged in host memory and uploaded in one copy; all
// memory is taken at construction. There are two sets of it, on the host and on the device, used in
// turn: while one step is under way the next is staged and uploaded. Addresses depend on the set
// alone.
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
  int64_t max_tokens = 0, max_sequences = 0;  // of a batch
  int64_t max_pages = 0, page_tokens = 0;     // of a sequence; of a page
  int64_t num_mtp_drafts = 0;                 // passes of the MTP layer, which want more staged
};

// Device memory of a builder with these limits.
int64_t plan_batch_bytes(const BatchLimits& limits);

// A batch as large as any, without memory behind it: to plan a step's memory with.
struct LargestBatch {
  std::vector<int32_t> cu_seqlens;  // the batch's attention refers to it
  model::Batch batch;
};
LargestBatch make_largest_batch(tensor::Device device, const BatchLimits& limits,
                                std::span<const model::LayerPages> layer_pages);

// An array in the current set, and its copy on the device.
struct StagedArray {
  char* host = nullptr;
  tensor::Tensor device;  // [capacity]
  int32_t* i32() const { return reinterpret_cast<int32_t*>(host); }
  float* f32() const { return reinterpret_cast<float*>(host); }
  tensor::Tensor as_sampling_rows() const {  // [R,48], of U8
    constexpr auto kBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));
    return device.reshaped({device.dim(0) / kBytes, kBytes});
  }
};

// Rows of a batch whose next token is sampled by one head call. Views of the builder's memory.
struct SamplingGroup {
  tensor::Tensor rows;             // [R] i32, rows of the batch
  tensor::Tensor parameters;       // [R, 48] U8, ops::SamplingRow
  tensor::Tensor tokens;           // [R] i32, written by sampling
  tensor::Tensor log_probs;        // [R] f32, likewise
  int32_t* host_tokens = nullptr;  // [R] in host memory, for hand_out_samples
  float* host_log_probs = nullptr;
};

// What a step samples, on its way to the host.
struct StepSamples {
  std::vector<Sequence*> due;   // by row; null: nobody wants it any more
  std::vector<int64_t> drafts;  // by row: Chunk::draft
  bool has_drafts() const { return !drafts.empty() && drafts.back() > 0; }  // they are the last
  // By row, once is_there is passed.
  const int32_t* tokens = nullptr;
  const float* log_probs = nullptr;
  // Guesses of the next token by row, and behind it, from pass to pass, those of further ones for
  // the rows of no draft: they follow the sequence's last draft that was right. A pass's guesses
  // begin draft_stride behind those of the pass before.
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

  // Stages and uploads a step, what is sampled included; what is queued on `stream` afterwards
  // finds it there. Valid until the next call. The step before the last must be over: its set is
  // written again. Tokens below 0 are staged as they are, for resolve_tokens. Shares
  // come in ascending order of their tokens, and so do due()'s sequences.
  // `makes_drafts`: drafts of what follows are wanted, where there is a layer to make them.
  const model::Batch& build(tensor::Stream stream, std::span<const Chunk> shares,
                            std::span<const model::LayerPages> layer_pages,
                            bool makes_drafts = false);
  // The same for shares of one token each, all of them sampled, filled up with sequences of no
  // tokens: a batch that depends on the two bounds alone, but for the content of its arrays.
  struct DecodeShape {
    int64_t num_sequences = 0, max_key_len = 0;
    bool has_drafts = false, makes_drafts = false;
    auto operator<=>(const DecodeShape&) const = default;
  };
  const model::Batch& build_decode(tensor::Stream stream, std::span<const Chunk> chunks,
                                   std::span<const model::LayerPages> layer_pages,
                                   const DecodeShape& shape);
  // What the last build staged, in the order of due(); no group has more than `max_rows` rows.
  // After build_decode the one group is as large as its shape.
  const std::vector<SamplingGroup>& group_samples(int64_t max_rows);
  // Where drafts are made: the same rows, with parameters, tokens and log-probs of what follows the
  // token that each samples. Empty where none are wanted.
  const std::vector<SamplingGroup>& group_drafts(int64_t max_rows);
  // Whether further passes guess more, for the sequences of a batch of one token a row. On a device
  // they have a row for each row of it, the sequences' own first and the others idle; else there is
  // one idle row, for ranks that make every pass together. On the CPU no row is idle.
  bool guesses_further() const { return guesses_further_; }
  tensor::Tensor chain_cu_seqlens() const {
    return chain_cu_seqlens_.device.rows(0, num_chain_rows_ + 1);
  }
  ops::DraftPass checked_pass() const;  // the batch's own, as what a pass follows
  ops::CheckedDrafts checked_drafts() const;
  ops::DraftPages draft_pages() const;
  tensor::Tensor drafts_of_pass(int64_t pass) const;  // [R] i32, from 0
  // As group_drafts, of a later pass with its own parameters [R,48] U8.
  const std::vector<SamplingGroup>& group_chain(int64_t max_rows, int64_t pass,
                                                tensor::Tensor parameters);
  // [T] i32 of the batch: the token behind each row, ~r where the step samples it as row r.
  tensor::Tensor next_tokens() const { return next_tokens_.device.rows(0, batch_.tokens.dim(0)); }
  tensor::Tensor sampled_now() const { return sampled_tokens_.device; }
  std::span<Sequence* const> due() const { return sets_[current_].samples.due; }
  size_t current_set() const { return current_; }
  // What the step before sampled, [max_sequences] i32 on the device.
  tensor::Tensor sampled_before() const { return sampled_[1 - current_]; }
  // due()'s samples, to be there when all that is queued on the stream is done. They stay until the
  // build after the next.
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
    int64_t num_rows = 0, first_token = 0;  // the latter of tokens
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
  // Of passes that guess further: [max_sequences] i32, chain_cu_seqlens [max_sequences + 1].
  StagedArray chain_cu_seqlens_, first_drafts_, num_drafts_, held_tokens_;
  StagedArray page_table_;                          // [max_sequences * max_pages] i32
  StagedArray sampled_tokens_, sampled_log_probs_;  // [max_sequences] i32, f32
  StagedArray draft_tokens_, draft_log_probs_;      // the same of drafts, tokens of every pass
  std::array<tensor::Tensor, kNumSets> sampled_;    // sampled_tokens_ of both sets
  int64_t num_sampled_rows_ = 0;                    // of due(), and padding
  bool makes_drafts_ = false, guesses_further_ = false;
  int64_t num_chain_rows_ = 0;
  std::vector<Chunk> sorted_;
  std::vector<SamplingGroup> groups_, draft_groups_;
  model::Batch batch_;
};

}  // namespace slimexx::rollout

// The memory of staged batches: arrays on the host, and their copies on the device. There are two
// sets of them, used in turn: while one step is in flight the next is staged and uploaded. All
// memory is allocated at construction; addresses depend on the set only.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "slimexx/ops/sampling.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::rollout {

struct BatchLimits {
  int64_t max_tokens = 0, max_sequences = 0;  // per batch
  int64_t max_pages = 0, page_tokens = 0;     // per sequence; per page
  int64_t num_mtp_drafts = 0;                 // passes of the MTP layer; they need more arrays
};

// Device memory of a builder with these limits.
int64_t plan_batch_bytes(const BatchLimits& limits);

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

struct BatchArrays {
  StagedArray cu_seqlens, context_lens;           // [max_sequences + 1], [max_sequences] i32
  StagedArray rows, parameters;                   // [max_sequences] i32; [max_sequences * 48] U8
  StagedArray tokens, positions, slots;           // [max_tokens] i32
  StagedArray page_table;                         // [max_sequences * max_pages] i32
  StagedArray sampled_tokens, sampled_log_probs;  // [max_sequences] i32, f32
};

// For drafts of an MTP layer; empty without one.
struct DraftArrays {
  StagedArray next_tokens, parameters;  // like tokens and parameters of BatchArrays
  // For the further draft passes: [max_sequences] i32; chain_cu_seqlens [max_sequences + 1].
  StagedArray chain_cu_seqlens, first_drafts, num_drafts, held_tokens;
  StagedArray tokens, log_probs;  // [num_mtp_drafts * max_sequences] i32, [max_sequences] f32
};

class BatchMemory {
 public:
  static constexpr size_t kNumSets = 2;

  BatchMemory(tensor::Device device, const BatchLimits& limits);
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;

  // The arrays of the current set.
  const BatchArrays& batch() const { return batch_; }
  const DraftArrays& drafts() const { return drafts_; }
  size_t current_set() const { return current_; }
  void use_next_set() { use_set(1 - current_); }
  // Uploads everything up to the first entries of the page table in one copy that overlaps the step
  // in flight: copying the gaps between arrays costs less than another call. Work queued on
  // `stream` afterwards sees the uploaded data.
  void upload(tensor::Stream stream, int64_t num_table_entries);
  // sampled_tokens of the other set, on the device.
  tensor::Tensor sampled_before() const { return sampled_[1 - current_]; }
  bool is_cpu() const { return copies_.device.is_cpu(); }
  int64_t memory_bytes() const;

 private:
  void use_set(size_t index);

  struct Set {
    tensor::StagingBuffer host;
    tensor::Buffer device;
    tensor::Event is_uploaded;
  };
  struct Part {
    StagedArray* array;
    tensor::DType dtype;
    int64_t size, offset;  // elements, bytes
  };

  tensor::Stream copies_;
  std::array<Set, kNumSets> sets_;
  size_t current_ = 0;
  std::vector<Part> parts_;  // the arrays below
  BatchArrays batch_;
  DraftArrays drafts_;
  std::array<tensor::Tensor, kNumSets> sampled_;  // sampled_tokens on the device, for both sets
};

}  // namespace slimexx::rollout

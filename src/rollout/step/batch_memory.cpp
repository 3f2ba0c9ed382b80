#include "rollout/step/batch_memory.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 256;  // alignment of each array, enough for any kernel
constexpr auto kParameterBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));

// One array of a set.
struct Extent {
  tensor::DType dtype;
  int64_t size;  // elements
  int64_t padded_bytes() const {
    return (size * tensor::dtype_bytes(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// In the order of list_arrays; the uploaded part ends with page_table.
constexpr size_t kNumArrays = 18;
std::array<Extent, kNumArrays> array_extents(const BatchLimits& limits) {
  using enum tensor::DType;
  const int64_t drafts = limits.num_mtp_drafts > 0 ? 1 : 0;
  const int64_t chain = limits.num_mtp_drafts > 1 ? 1 : 0;
  return {{{kI32, limits.max_sequences + 1},                        // cu_seqlens
           {kI32, limits.max_sequences},                            // context_lens
           {kI32, limits.max_sequences},                            // rows
           {kU8, limits.max_sequences * kParameterBytes},           // parameters
           {kI32, limits.max_tokens},                               // tokens
           {kI32, limits.max_tokens},                               // positions
           {kI32, limits.max_tokens},                               // slots
           {kI32, drafts * limits.max_tokens},                      // next_tokens
           {kU8, drafts * limits.max_sequences * kParameterBytes},  // draft_parameters
           {kI32, chain * (limits.max_sequences + 1)},              // chain_cu_seqlens
           {kI32, chain * limits.max_sequences},                    // first_drafts
           {kI32, chain * limits.max_sequences},                    // num_drafts
           {kI32, chain * limits.max_sequences},                    // held_tokens
           {kI32, limits.max_sequences * limits.max_pages},         // page_table
           {kI32, limits.max_sequences},                            // sampled_tokens
           {kF32, limits.max_sequences},                            // sampled_log_probs
           {kI32, limits.num_mtp_drafts * limits.max_sequences},    // draft_tokens
           {kF32, drafts * limits.max_sequences}}};                 // draft_log_probs
}

std::array<StagedArray*, kNumArrays> list_arrays(BatchArrays& batch, DraftArrays& drafts) {
  return {&batch.cu_seqlens,     &batch.context_lens,
          &batch.rows,           &batch.parameters,
          &batch.tokens,         &batch.positions,
          &batch.slots,          &drafts.next_tokens,
          &drafts.parameters,    &drafts.chain_cu_seqlens,
          &drafts.first_drafts,  &drafts.num_drafts,
          &drafts.held_tokens,   &batch.page_table,
          &batch.sampled_tokens, &batch.sampled_log_probs,
          &drafts.tokens,        &drafts.log_probs};
}

}  // namespace

int64_t plan_batch_bytes(const BatchLimits& limits) {
  int64_t bytes = 0;
  for (const Extent& extent : array_extents(limits)) bytes += extent.padded_bytes();
  return static_cast<int64_t>(BatchMemory::kNumSets) * bytes;
}

BatchMemory::BatchMemory(tensor::Device device, const BatchLimits& limits)
    : copies_(tensor::side_stream(device)) {
  const auto arrays = list_arrays(batch_, drafts_);
  const auto extents = array_extents(limits);
  int64_t bytes = 0;
  for (size_t i = 0; i < kNumArrays; ++i) {
    parts_.push_back({arrays[i], extents[i].dtype, extents[i].size, bytes});
    bytes += extents[i].padded_bytes();
  }
  for (size_t i = 0; i < sets_.size(); ++i) {
    sets_[i].host = tensor::StagingBuffer(device, bytes, "rollout batches");
    sets_[i].device = tensor::Buffer(device, bytes, "rollout batches");
    use_set(i);
    sampled_[i] = batch_.sampled_tokens.device;
  }
}

int64_t BatchMemory::memory_bytes() const {
  return sets_[0].device.size_bytes() + sets_[1].device.size_bytes();
}

void BatchMemory::use_set(size_t index) {
  current_ = index;
  for (const Part& part : parts_) {
    part.array->host = sets_[index].host.data() + part.offset;
    part.array->device = sets_[index].device.view(part.dtype, {part.size}, part.offset);
  }
}

void BatchMemory::upload(tensor::Stream stream, int64_t num_table_entries) {
  Set& set = sets_[current_];
  const int64_t bytes = batch_.page_table.host - set.host.data() +
                        num_table_entries * tensor::dtype_bytes(tensor::DType::kI32);
  tensor::upload(copies_, set.device.view(tensor::DType::kU8, {bytes}), set.host.data());
  set.is_uploaded.record(copies_);
  set.is_uploaded.wait_on(stream);
}

}  // namespace slimexx::rollout

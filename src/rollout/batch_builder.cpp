#include "rollout/batch_builder.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 64;

int64_t padded_bytes(int64_t num_elements) {
  return (num_elements * 4 + kAlignment - 1) / kAlignment * kAlignment;
}

// Rule N8: a uniform number is named by run seed, rollout, prompt, sample and position in the
// response.
ops::SamplingRow sampling_row(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request.sampling;
  const RandomName& name = sequence.request.name;
  return {.top_p = sampling.top_p,
          .top_k = std::max(sampling.top_k, 0),
          .min_p = sampling.min_p,
          .greedy = sampling.greedy,
          .seed = name.seed,
          .counter = {static_cast<uint32_t>(sequence.num_response_tokens()), name.sample,
                      name.prompt, name.rollout}};
}

}  // namespace

BatchBuilder::BatchBuilder(tensor::Device device, const BatchLimits& limits) : limits_(limits) {
  SLX_CHECK(device.is_cpu(), "batches are staged in host memory");
  const int64_t table_size = limits.max_sequences * limits.max_pages;
  const int64_t bytes = 3 * padded_bytes(limits.max_tokens) + padded_bytes(table_size) +
                        3 * padded_bytes(limits.max_sequences);
  buffer_ = tensor::Buffer(device, bytes, "rollout batches");
  int64_t offset = 0;
  const auto take = [&](tensor::DType dtype, int64_t size) {
    const tensor::Tensor view = buffer_.view(dtype, {size}, offset);
    offset += padded_bytes(size);
    return view;
  };
  for (tensor::Tensor* staged : {&tokens_, &positions_, &slots_})
    *staged = take(tensor::DType::kI32, limits.max_tokens);
  page_table_ = take(tensor::DType::kI32, table_size);
  rows_ = take(tensor::DType::kI32, limits.max_sequences);
  sampled_tokens_ = take(tensor::DType::kI32, limits.max_sequences);
  sampled_log_probs_ = take(tensor::DType::kF32, limits.max_sequences);
}

void BatchBuilder::append_chunk(const Chunk& chunk, int32_t* page_row, int64_t first_row) {
  const Sequence& sequence = *chunk.sequence;
  const int64_t page_tokens = limits_.page_tokens;
  std::ranges::copy(sequence.pages, page_row);
  std::copy_n(sequence.tokens.data() + chunk.begin, chunk.count, tokens_.i32() + first_row);
  int64_t page_index = chunk.begin / page_tokens, offset = chunk.begin % page_tokens;
  for (int64_t i = 0; i < chunk.count; ++i) {
    positions_.i32()[first_row + i] = static_cast<int32_t>(chunk.begin + i);
    slots_.i32()[first_row + i] = static_cast<int32_t>(page_row[page_index] * page_tokens + offset);
    if (++offset == page_tokens) offset = 0, ++page_index;
  }
}

const model::Batch& BatchBuilder::build(std::span<const Chunk> chunks,
                                        std::span<const model::LayerPages> layer_pages) {
  SLX_CHECK_LE(static_cast<int64_t>(chunks.size()), limits_.max_sequences);
  size_t width = 0;
  int64_t num_tokens = 0;
  for (const Chunk& chunk : chunks) {
    width = std::max(width, chunk.sequence->pages.size());
    num_tokens += chunk.count;
  }
  SLX_CHECK_LE(num_tokens, limits_.max_tokens);
  SLX_CHECK_LE(static_cast<int64_t>(width), limits_.max_pages);
  cu_seqlens_.assign(1, 0);
  context_lens_.clear();
  for (size_t b = 0; b < chunks.size(); ++b) {
    append_chunk(chunks[b], page_table_.i32() + b * width, cu_seqlens_.back());
    cu_seqlens_.push_back(cu_seqlens_.back() + static_cast<int32_t>(chunks[b].count));
    context_lens_.push_back(static_cast<int32_t>(chunks[b].begin));
  }
  finish_batch(num_tokens, static_cast<int64_t>(width), layer_pages);
  return batch_;
}

const model::Batch& BatchBuilder::build_largest(std::span<const model::LayerPages> layer_pages) {
  const int64_t num_sequences = std::min(limits_.max_sequences, limits_.max_tokens);
  cu_seqlens_.clear();
  for (int64_t b = 0; b <= num_sequences; ++b)
    cu_seqlens_.push_back(static_cast<int32_t>(limits_.max_tokens * b / num_sequences));
  context_lens_.assign(static_cast<size_t>(num_sequences), 0);
  finish_batch(limits_.max_tokens, limits_.max_pages, layer_pages);
  return batch_;
}

void BatchBuilder::finish_batch(int64_t num_tokens, int64_t table_width,
                                std::span<const model::LayerPages> layer_pages) {
  const auto num_sequences = static_cast<int64_t>(context_lens_.size());
  batch_.tokens = tokens_.rows(0, num_tokens);
  batch_.positions = positions_.rows(0, num_tokens);
  batch_.slots = slots_.rows(0, num_tokens);
  batch_.pages = layer_pages;
  batch_.attention.cu_seqlens = cu_seqlens_;
  batch_.attention.context_lens = context_lens_;
  batch_.attention.page_table =
      page_table_.rows(0, num_sequences * table_width).reshaped({num_sequences, table_width});
  batch_.attention.page_tokens = limits_.page_tokens;
}

const std::vector<SamplingGroup>& BatchBuilder::group_samples(std::span<const Chunk> chunks,
                                                              int64_t max_rows) {
  due_.clear();
  parameters_.clear();
  due_sequences_.clear();
  groups_.clear();
  for (size_t b = 0; b < chunks.size(); ++b)
    if (chunks[b].samples) due_.emplace_back(cu_seqlens_[b + 1] - 1, chunks[b].sequence);
  std::ranges::stable_sort(
      due_, {}, [](const auto& due) { return due.second->request.sampling.temperature; });
  for (const auto& [row, sequence] : due_) {
    rows_.i32()[parameters_.size()] = row;
    parameters_.push_back(sampling_row(*sequence));
    due_sequences_.push_back(sequence);
  }
  const auto temperature = [&](size_t i) {
    return due_sequences_[i]->request.sampling.temperature;
  };
  for (size_t begin = 0, end; begin < due_.size(); begin = end) {
    for (end = begin + 1; end < due_.size() && temperature(end) == temperature(begin);) {
      if (static_cast<int64_t>(end - begin) == max_rows) break;
      ++end;
    }
    const auto first = static_cast<int64_t>(begin), last = static_cast<int64_t>(end);
    groups_.push_back({.temperature = temperature(begin),
                       .rows = rows_.rows(first, last),
                       .tokens = sampled_tokens_.rows(first, last),
                       .log_probs = sampled_log_probs_.rows(first, last),
                       .parameters = std::span(parameters_).subspan(begin, end - begin),
                       .sequences = std::span(due_sequences_).subspan(begin, end - begin)});
  }
  return groups_;
}

}  // namespace slimexx::rollout

#include "rollout/batch_builder.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 256;  // what kernels may ask of an array's start
constexpr auto kParameterBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Rule N8: a uniform number is named by run seed, rollout, prompt, sample and position in the
// response.
ops::SamplingRow sampling_row(const Sequence& sequence) {
  const SamplingParams& sampling = sequence.request.sampling;
  const RandomName& name = sequence.request.name;
  return {.temperature = sampling.temperature,
          .top_p = sampling.top_p,
          .top_k = std::max(sampling.top_k, 0),
          .min_p = sampling.min_p,
          .greedy = sampling.greedy ? 1 : 0,
          .seed = name.seed,
          .counter = {static_cast<uint32_t>(sequence.num_response_tokens()), name.sample,
                      name.prompt, name.rollout}};
}

}  // namespace

BatchBuilder::BatchBuilder(tensor::Device device, const BatchLimits& limits)
    : device_(device), limits_(limits) {
  struct Part {
    StagedArray* array;
    tensor::DType dtype;
    int64_t size;
  };
  using enum tensor::DType;
  const Part parts[] = {{&tokens_, kI32, limits.max_tokens},
                        {&positions_, kI32, limits.max_tokens},
                        {&slots_, kI32, limits.max_tokens},
                        {&page_table_, kI32, limits.max_sequences * limits.max_pages},
                        {&cu_seqlens_, kI32, limits.max_sequences + 1},
                        {&context_lens_, kI32, limits.max_sequences},
                        {&rows_, kI32, limits.max_sequences},
                        {&parameters_, kU8, limits.max_sequences * kParameterBytes},
                        {&sampled_tokens_, kI32, limits.max_sequences},
                        {&sampled_log_probs_, kF32, limits.max_sequences},
                        {&sampled_lse_, kF32, limits.max_sequences}};
  int64_t bytes = 0;
  for (const Part& p : parts) bytes += padded(p.size * tensor::dtype_bytes(p.dtype));
  staging_ = tensor::StagingBuffer(device, bytes, "rollout batches");
  if (!device.is_cpu()) buffer_ = tensor::Buffer(device, bytes, "rollout batches");
  int64_t offset = 0;
  for (const Part& p : parts) {
    p.array->host = staging_.data() + offset;
    p.array->device = device.is_cpu() ? tensor::Tensor(p.array->host, p.dtype, device, {p.size})
                                      : buffer_.view(p.dtype, {p.size}, offset);
    offset += padded(p.size * tensor::dtype_bytes(p.dtype));
  }
}

void BatchBuilder::upload(tensor::Stream stream, const StagedArray& array,
                          int64_t num_elements) const {
  if (!device_.is_cpu()) tensor::upload(stream, array.device.rows(0, num_elements), array.host);
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

const model::Batch& BatchBuilder::build(tensor::Stream stream, std::span<const Chunk> chunks,
                                        std::span<const model::LayerPages> layer_pages) {
  const auto num_sequences = static_cast<int64_t>(chunks.size());
  SLX_CHECK_LE(num_sequences, limits_.max_sequences);
  size_t width = 0;
  int64_t num_tokens = 0;
  for (const Chunk& chunk : chunks) {
    width = std::max(width, chunk.sequence->pages.size());
    num_tokens += chunk.count;
  }
  SLX_CHECK_LE(num_tokens, limits_.max_tokens);
  SLX_CHECK_LE(static_cast<int64_t>(width), limits_.max_pages);
  int32_t* cu = cu_seqlens_.i32();
  cu[0] = 0;
  for (size_t b = 0; b < chunks.size(); ++b) {
    append_chunk(chunks[b], page_table_.i32() + b * width, cu[b]);
    cu[b + 1] = cu[b] + static_cast<int32_t>(chunks[b].count);
    context_lens_.i32()[b] = static_cast<int32_t>(chunks[b].begin);
  }
  for (const StagedArray* array : {&tokens_, &positions_, &slots_})
    upload(stream, *array, num_tokens);
  upload(stream, page_table_, num_sequences * static_cast<int64_t>(width));
  upload(stream, cu_seqlens_, num_sequences + 1);
  upload(stream, context_lens_, num_sequences);
  batch_.attention.cu_seqlens = {cu, chunks.size() + 1};
  finish_batch(num_tokens, static_cast<int64_t>(width), layer_pages);
  return batch_;
}

const model::Batch& BatchBuilder::build_largest(std::span<const model::LayerPages> layer_pages) {
  const int64_t num_sequences = std::min(limits_.max_sequences, limits_.max_tokens);
  for (int64_t b = 0; b <= num_sequences; ++b)
    cu_seqlens_.i32()[b] = static_cast<int32_t>(limits_.max_tokens * b / num_sequences);
  std::fill_n(context_lens_.i32(), num_sequences, 0);
  batch_.attention.cu_seqlens = {cu_seqlens_.i32(), static_cast<size_t>(num_sequences) + 1};
  finish_batch(limits_.max_tokens, limits_.max_pages, layer_pages);
  // The longest context, too, decides what attention needs.
  batch_.attention.max_query_len = limits_.max_tokens;
  batch_.attention.max_key_len = limits_.max_pages * limits_.page_tokens;
  return batch_;
}

void BatchBuilder::finish_batch(int64_t num_tokens, int64_t table_width,
                                std::span<const model::LayerPages> layer_pages) {
  ops::AttentionLayout& layout = batch_.attention;
  const auto num_sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  batch_.tokens = tokens_.device.rows(0, num_tokens);
  batch_.positions = positions_.device.rows(0, num_tokens);
  batch_.slots = slots_.device.rows(0, num_tokens);
  batch_.pages = layer_pages;
  layout.context_lens = {context_lens_.i32(), static_cast<size_t>(num_sequences)};
  layout.page_table = page_table_.device.rows(0, num_sequences * table_width)
                          .reshaped({num_sequences, table_width});
  layout.page_tokens = limits_.page_tokens;
  layout.device_cu_seqlens = cu_seqlens_.device.rows(0, num_sequences + 1);
  layout.device_context_lens = context_lens_.device.rows(0, num_sequences);
  layout.max_query_len = layout.max_key_len = 0;
}

const std::vector<SamplingGroup>& BatchBuilder::group_samples(tensor::Stream stream,
                                                              std::span<const Chunk> chunks,
                                                              int64_t max_rows) {
  due_.clear();
  groups_.clear();
  auto* parameters = reinterpret_cast<ops::SamplingRow*>(parameters_.host);
  for (size_t b = 0; b < chunks.size(); ++b) {
    if (!chunks[b].samples) continue;
    rows_.i32()[due_.size()] = cu_seqlens_.i32()[b + 1] - 1;
    parameters[due_.size()] = sampling_row(*chunks[b].sequence);
    due_.push_back(chunks[b].sequence);
  }
  const auto count = static_cast<int64_t>(due_.size());
  upload(stream, rows_, count);
  upload(stream, parameters_, count * kParameterBytes);
  for (int64_t begin = 0; begin < count; begin += max_rows) {
    const int64_t end = std::min(count, begin + max_rows);
    groups_.push_back(
        {.rows = rows_.device.rows(begin, end),
         .parameters = parameters_.device.rows(begin * kParameterBytes, end * kParameterBytes)
                           .reshaped({end - begin, kParameterBytes}),
         .tokens = sampled_tokens_.device.rows(begin, end),
         .log_probs = sampled_log_probs_.device.rows(begin, end),
         .lse = sampled_lse_.device.rows(begin, end),
         .sequences =
             std::span(due_).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
         .first = begin});
  }
  return groups_;
}

BatchBuilder::Sampled BatchBuilder::download_samples(tensor::Stream stream) {
  const auto count = static_cast<int64_t>(due_.size());
  if (!device_.is_cpu()) {
    tensor::download_later(stream, sampled_tokens_.host, sampled_tokens_.device.rows(0, count));
    tensor::download_later(stream, sampled_log_probs_.host,
                           sampled_log_probs_.device.rows(0, count));
    tensor::synchronize(stream);
  }
  return {.tokens = {sampled_tokens_.i32(), due_.size()},
          .log_probs = {sampled_log_probs_.f32(), due_.size()}};
}

}  // namespace slimexx::rollout

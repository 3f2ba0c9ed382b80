#include "rollout/step/batch_builder.h"

#include <algorithm>

#include "slimexx/base/check.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kAlignment = 256;  // alignment of each array, enough for any kernel
constexpr auto kParameterBytes = static_cast<int64_t>(sizeof(ops::SamplingRow));

// The type and size of one array.
struct Extent {
  tensor::DType dtype;
  int64_t size;  // elements
  int64_t padded_bytes() const {
    return (size * tensor::dtype_bytes(dtype) + kAlignment - 1) / kAlignment * kAlignment;
  }
};

// In the order of BatchBuilder's arrays; the uploaded part ends with page_table.
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

// Rule N8: run seed, group, sample and position in the response identify a random number. Here the
// position is `further` tokens after the token that the chunk samples.
ops::SamplingRow sampling_row(const Chunk& chunk, uint32_t further = 0) {
  const Sequence& sequence = *chunk.sequence;
  const SamplingParams& sampling = sequence.request.sampling;
  const RandomName& name = sequence.request.name;
  return {.temperature = sampling.temperature,
          .top_p = sampling.top_p,
          .top_k = std::max(sampling.top_k, 0),
          .min_p = sampling.min_p,
          .greedy = sampling.greedy ? 1 : 0,
          .seed = name.seed,
          .counter = {static_cast<uint32_t>(sequence.num_response_tokens() + chunk.draft) + further,
                      name.sample, static_cast<uint32_t>(name.group),
                      static_cast<uint32_t>(name.group >> 32)}};
}

// Attention may split the keys of every decode sequence, and of short chunks in the same batch.
int64_t max_split_tokens(const BatchLimits& limits) {
  constexpr int64_t kLeast = 64;
  return std::max(limits.max_sequences, kLeast);
}

}  // namespace

int64_t plan_batch_bytes(const BatchLimits& limits) {
  int64_t bytes = 0;
  for (const Extent& extent : array_extents(limits)) bytes += extent.padded_bytes();
  return BatchBuilder::kNumSets * bytes;
}

LargestBatch make_largest_batch(tensor::Device device, const BatchLimits& limits,
                                std::span<const model::LayerPages> layer_pages) {
  const int64_t num_sequences = std::min(limits.max_sequences, limits.max_tokens);
  const auto ints = [&](std::initializer_list<int64_t> shape) {
    return tensor::Tensor(nullptr, tensor::DType::kI32, device, shape);
  };
  LargestBatch largest;
  for (int64_t b = 0; b <= num_sequences; ++b)
    largest.cu_seqlens.push_back(static_cast<int32_t>(limits.max_tokens * b / num_sequences));
  largest.batch = {.tokens = ints({limits.max_tokens}),
                   .positions = ints({limits.max_tokens}),
                   .attention = {.cu_seqlens = largest.cu_seqlens,
                                 .context_lens = {},
                                 .page_table = ints({num_sequences, limits.max_pages}),
                                 .page_tokens = limits.page_tokens,
                                 .device_cu_seqlens = ints({num_sequences + 1}),
                                 .device_context_lens = ints({num_sequences}),
                                 // Attention's workspace depends on the longest context, too.
                                 .max_query_len = limits.max_tokens,
                                 .max_key_len = limits.max_pages * limits.page_tokens,
                                 .max_split_tokens = max_split_tokens(limits)},
                   .slots = ints({limits.max_tokens}),
                   .pages = layer_pages};
  return largest;
}

BatchBuilder::BatchBuilder(tensor::Device device, const BatchLimits& limits)
    : limits_(limits), copies_(tensor::side_stream(device)) {
  const std::array<StagedArray*, kNumArrays> arrays{
      &cu_seqlens_,        &context_lens_, &rows_,           &parameters_,       &tokens_,
      &positions_,         &slots_,        &next_tokens_,    &draft_parameters_, &chain_cu_seqlens_,
      &first_drafts_,      &num_drafts_,   &held_tokens_,    &page_table_,       &sampled_tokens_,
      &sampled_log_probs_, &draft_tokens_, &draft_log_probs_};
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
    sampled_[i] = sampled_tokens_.device;
  }
}

int64_t BatchBuilder::memory_bytes() const {
  return sets_[0].device.size_bytes() + sets_[1].device.size_bytes();
}

void BatchBuilder::use_set(size_t index) {
  current_ = index;
  for (const Part& part : parts_) {
    part.array->host = sets_[index].host.data() + part.offset;
    part.array->device = sets_[index].device.view(part.dtype, {part.size}, part.offset);
  }
}

void BatchBuilder::begin_set() {
  use_set(1 - current_);
  sets_[current_].samples.due.clear();
  sets_[current_].samples.drafts.clear();
}

// Uploads everything up to the end of the page table in one copy that overlaps the step in flight:
// copying the gaps between arrays costs less than another call.
void BatchBuilder::upload_staged(tensor::Stream stream, int64_t num_table_entries) {
  Set& set = sets_[current_];
  const int64_t bytes = page_table_.host - set.host.data() +
                        num_table_entries * tensor::dtype_bytes(tensor::DType::kI32);
  tensor::upload(copies_, set.device.view(tensor::DType::kU8, {bytes}), set.host.data());
  set.is_uploaded.record(copies_);
  set.is_uploaded.wait_on(stream);
}

void BatchBuilder::append_chunk(const Chunk& chunk, int32_t* page_row, int64_t first_row) {
  const Sequence& sequence = *chunk.sequence;
  const int64_t page_tokens = limits_.page_tokens;
  std::ranges::copy(sequence.pages, page_row);
  const TokenId* tokens = chunk.draft > 0 ? sequence.drafts.data() + (chunk.draft - 1)
                                          : sequence.tokens.data() + chunk.begin;
  std::copy_n(tokens, chunk.count, tokens_.i32() + first_row);
  int64_t page_index = chunk.begin / page_tokens, offset = chunk.begin % page_tokens;
  for (int64_t i = 0; i < chunk.count; ++i) {
    positions_.i32()[first_row + i] = static_cast<int32_t>(chunk.begin + i);
    slots_.i32()[first_row + i] = static_cast<int32_t>(page_row[page_index] * page_tokens + offset);
    if (++offset == page_tokens) offset = 0, ++page_index;
  }
}

// The token after a row may still be sampled by the step in flight. Then use 0: only drafts depend
// on it.
void BatchBuilder::append_next_tokens(const Chunk& chunk, int64_t first_row) {
  const std::vector<TokenId>& tokens = chunk.sequence->tokens;
  for (int64_t i = 0; i < chunk.count; ++i) {
    const auto next = static_cast<size_t>(chunk.begin + i + 1);
    next_tokens_.i32()[first_row + i] = next < tokens.size() ? std::max(tokens[next], 0) : 0;
  }
}

void BatchBuilder::stage_chunks(std::span<const Chunk> chunks, int64_t table_width) {
  int32_t* cu = cu_seqlens_.i32();
  cu[0] = 0;
  for (size_t b = 0; b < chunks.size(); ++b) {
    append_chunk(chunks[b], page_table_.i32() + static_cast<int64_t>(b) * table_width, cu[b]);
    if (limits_.num_mtp_drafts > 0) append_next_tokens(chunks[b], cu[b]);
    cu[b + 1] = cu[b] + static_cast<int32_t>(chunks[b].count);
    context_lens_.i32()[b] = static_cast<int32_t>(chunks[b].begin);
  }
  batch_.attention.cu_seqlens = {cu, chunks.size() + 1};
  // Decode attention may read these keys while resolve_tokens() runs: earlier steps wrote them,
  // unless another chunk of this step does.
  batch_.attention.context_is_written = std::ranges::none_of(chunks, &Chunk::adopts_pages);
}

void BatchBuilder::stage_samples(std::span<const Chunk> chunks) {
  std::vector<Sequence*>& due = sets_[current_].samples.due;
  auto* parameters = reinterpret_cast<ops::SamplingRow*>(parameters_.host);
  auto* drafts = reinterpret_cast<ops::SamplingRow*>(draft_parameters_.host);
  for (size_t b = 0; b < chunks.size(); ++b) {
    if (!chunks[b].samples) continue;
    rows_.i32()[due.size()] = cu_seqlens_.i32()[b + 1] - 1;
    parameters[due.size()] = sampling_row(chunks[b]);
    if (limits_.num_mtp_drafts > 0) {
      drafts[due.size()] = sampling_row(chunks[b], 1);
      next_tokens_.i32()[cu_seqlens_.i32()[b + 1] - 1] = ~static_cast<int32_t>(due.size());
    }
    due.push_back(chunks[b].sequence);
    sets_[current_].samples.drafts.push_back(chunks[b].draft);
  }
  num_sampled_rows_ = std::ssize(due);
}

const model::Batch& BatchBuilder::build(tensor::Stream stream, std::span<const Chunk> shares,
                                        std::span<const model::LayerPages> layer_pages,
                                        bool makes_drafts) {
  makes_drafts_ = makes_drafts && limits_.num_mtp_drafts > 0;
  // Decodes first, then by ascending length: attention runs neighbouring chunks of similar length
  // with one kernel (attention_runs.h).
  sorted_.assign(shares.begin(), shares.end());
  std::ranges::stable_sort(sorted_, {}, &Chunk::count);
  const std::span<const Chunk> chunks = sorted_;
  const auto num_sequences = static_cast<int64_t>(chunks.size());
  SLX_CHECK_LE(num_sequences, limits_.max_sequences);
  size_t pages = 0;
  int64_t num_tokens = 0;
  for (const Chunk& chunk : chunks) {
    pages = std::max(pages, chunk.sequence->pages.size());
    num_tokens += chunk.count;
  }
  const auto width = static_cast<int64_t>(pages);
  SLX_CHECK_LE(num_tokens, limits_.max_tokens);
  SLX_CHECK_LE(width, limits_.max_pages);
  begin_set();
  stage_chunks(chunks, width);
  stage_samples(chunks);
  // On a GPU, build_decode builds such batches.
  const bool decodes = copies_.device.is_cpu() && std::ranges::all_of(chunks, [](const Chunk& c) {
                         return c.count == 1 && c.samples;
                       });
  stage_chain(chunks, decodes, num_sequences);
  upload_staged(stream, num_sequences * width);
  finish_batch(num_tokens, width, layer_pages);
  return batch_;
}

// Padding rows [from, to): their sequences have no queries, write no keys, and their results are
// not read.
void BatchBuilder::pad_decode(int64_t from, int64_t to) {
  for (int64_t b = from; b < to; ++b) {
    tokens_.i32()[b] = 0;
    positions_.i32()[b] = 0;
    slots_.i32()[b] = -1;
    cu_seqlens_.i32()[b + 1] = cu_seqlens_.i32()[from];
    context_lens_.i32()[b] = 0;
    rows_.i32()[b] = static_cast<int32_t>(b);
    reinterpret_cast<ops::SamplingRow*>(parameters_.host)[b] = ops::SamplingRow{.greedy = 1};
    if (limits_.num_mtp_drafts == 0) continue;
    next_tokens_.i32()[b] = 0;
    reinterpret_cast<ops::SamplingRow*>(draft_parameters_.host)[b] = ops::SamplingRow{.greedy = 1};
  }
}

const model::Batch& BatchBuilder::build_decode(tensor::Stream stream, std::span<const Chunk> chunks,
                                               std::span<const model::LayerPages> layer_pages,
                                               const DecodeShape& shape) {
  makes_drafts_ = shape.makes_drafts && limits_.num_mtp_drafts > 0;
  const auto num_sequences = static_cast<int64_t>(chunks.size());
  SLX_CHECK(num_sequences <= shape.num_sequences && shape.num_sequences <= limits_.max_sequences &&
                shape.num_sequences <= limits_.max_tokens,
            "{} sequences, {} expected", num_sequences, shape.num_sequences);
  // The stride of page table rows is fixed, since it is part of the recorded shape.
  const int64_t width = limits_.max_pages;
  begin_set();
  stage_chunks(chunks, width);
  stage_samples(chunks);
  SLX_CHECK(std::ssize(due()) == num_sequences, "{} of {} shares are sampled", due().size(),
            num_sequences);
  pad_decode(num_sequences, shape.num_sequences);
  num_sampled_rows_ = shape.num_sequences;
  stage_chain(chunks, true, shape.num_sequences);
  batch_.attention.cu_seqlens = {cu_seqlens_.i32(), static_cast<size_t>(shape.num_sequences) + 1};
  upload_staged(stream, num_sequences * width);
  finish_batch(shape.num_sequences, width, layer_pages);
  batch_.attention.cu_seqlens = {};
  batch_.attention.context_lens = {};
  batch_.attention.max_query_len = 1;
  batch_.attention.max_key_len = shape.max_key_len;
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
  layout.max_split_tokens = max_split_tokens(limits_);
}

const std::vector<SamplingGroup>& BatchBuilder::cut_groups(const Sampled& sampled, int64_t max_rows,
                                                           std::vector<SamplingGroup>& groups) {
  groups.clear();
  for (int64_t begin = 0; begin < sampled.num_rows; begin += max_rows) {
    const int64_t end = std::min(sampled.num_rows, begin + max_rows);
    const int64_t token = sampled.first_token + begin;
    groups.push_back({.rows = rows_.device.rows(begin, end),
                      .parameters = sampled.parameters.rows(begin, end),
                      .tokens = sampled.tokens.device.rows(token, token + end - begin),
                      .log_probs = sampled.log_probs.device.rows(begin, end),
                      .host_tokens = sampled.tokens.i32() + token,
                      .host_log_probs = sampled.log_probs.f32() + begin});
  }
  return groups;
}

const std::vector<SamplingGroup>& BatchBuilder::group_samples(int64_t max_rows) {
  return cut_groups(
      {parameters_.as_sampling_rows(), sampled_tokens_, sampled_log_probs_, num_sampled_rows_},
      max_rows, groups_);
}

StepSamples& BatchBuilder::await_samples(tensor::Stream stream) {
  StepSamples& samples = sets_[current_].samples;
  samples.tokens = sampled_tokens_.i32();
  samples.log_probs = sampled_log_probs_.f32();
  samples.draft_tokens = draft_tokens_.i32();
  samples.draft_stride = limits_.max_sequences;
  samples.num_draft_passes = guesses_further_ ? limits_.num_mtp_drafts : makes_drafts_ ? 1 : 0;
  samples.is_there.record(stream);
  return samples;
}

}  // namespace slimexx::rollout

#include "rollout/step/batch_builder.h"

#include <algorithm>

#include "slimexx/base/check.h"
#include "slimexx/ops/attention.h"

namespace slimexx::rollout {
namespace {

// Numerics contract, N8: a random number is named by run seed, group, sample and position in the
// response. The position here is `further` tokens after the one that the chunk samples.
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

// Upper bound on tokens whose keys attention splits: those of all decodes, and of short chunks in
// the same batch.
int64_t max_split_tokens(const BatchLimits& limits) {
  constexpr int64_t kLeast = 64;
  return std::max(limits.max_sequences, kLeast);
}

void append_chunk(const BatchArrays& arrays, const Chunk& chunk, int64_t page_tokens,
                  int32_t* page_row, int64_t first_row) {
  const Sequence& sequence = *chunk.sequence;
  std::ranges::copy(sequence.pages, page_row);
  const TokenId* tokens = chunk.draft > 0 ? sequence.drafts.data() + (chunk.draft - 1)
                                          : sequence.tokens.data() + chunk.begin;
  std::copy_n(tokens, chunk.count, arrays.tokens.i32() + first_row);
  int64_t page_index = chunk.begin / page_tokens, offset = chunk.begin % page_tokens;
  for (int64_t i = 0; i < chunk.count; ++i) {
    arrays.positions.i32()[first_row + i] = static_cast<int32_t>(chunk.begin + i);
    arrays.slots.i32()[first_row + i] =
        static_cast<int32_t>(page_row[page_index] * page_tokens + offset);
    if (++offset == page_tokens) offset = 0, ++page_index;
  }
}

// Padding rows [from, to): their sequences have no queries, write no keys, and their results are
// not read.
void pad_decode(const BatchArrays& arrays, int64_t from, int64_t to) {
  for (int64_t b = from; b < to; ++b) {
    arrays.tokens.i32()[b] = 0;
    arrays.positions.i32()[b] = 0;
    arrays.slots.i32()[b] = -1;
    arrays.cu_seqlens.i32()[b + 1] = arrays.cu_seqlens.i32()[from];
    arrays.context_lens.i32()[b] = 0;
    arrays.rows.i32()[b] = static_cast<int32_t>(b);
    reinterpret_cast<ops::SamplingRow*>(arrays.parameters.host)[b] = ops::SamplingRow{.greedy = 1};
  }
}

// Sets the views of a staged batch whose cu_seqlens are already set.
void lay_out(const BatchArrays& arrays, const BatchLimits& limits, int64_t num_tokens,
             int64_t table_width, std::span<const model::LayerPages> layer_pages,
             model::Batch& batch) {
  ops::AttentionLayout& layout = batch.attention;
  const auto num_sequences = static_cast<int64_t>(layout.cu_seqlens.size()) - 1;
  batch.tokens = arrays.tokens.device.rows(0, num_tokens);
  batch.positions = arrays.positions.device.rows(0, num_tokens);
  batch.slots = arrays.slots.device.rows(0, num_tokens);
  batch.pages = layer_pages;
  layout.context_lens = {arrays.context_lens.i32(), static_cast<size_t>(num_sequences)};
  layout.page_table = arrays.page_table.device.rows(0, num_sequences * table_width)
                          .reshaped({num_sequences, table_width});
  layout.page_tokens = limits.page_tokens;
  layout.device_cu_seqlens = arrays.cu_seqlens.device.rows(0, num_sequences + 1);
  layout.device_context_lens = arrays.context_lens.device.rows(0, num_sequences);
  layout.max_query_len = layout.max_key_len = 0;
  layout.max_split_tokens = max_split_tokens(limits);
}

}  // namespace

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

void BatchBuilder::stage_chunks(std::span<const Chunk> chunks, int64_t table_width) {
  const BatchArrays& arrays = memory_.batch();
  int32_t* cu = arrays.cu_seqlens.i32();
  cu[0] = 0;
  for (size_t b = 0; b < chunks.size(); ++b) {
    append_chunk(arrays, chunks[b], limits_.page_tokens,
                 arrays.page_table.i32() + static_cast<int64_t>(b) * table_width, cu[b]);
    if (limits_.num_mtp_drafts > 0) stage_next_tokens(memory_.drafts(), chunks[b], cu[b]);
    cu[b + 1] = cu[b] + static_cast<int32_t>(chunks[b].count);
    arrays.context_lens.i32()[b] = static_cast<int32_t>(chunks[b].begin);
  }
  batch_.attention.cu_seqlens = {cu, chunks.size() + 1};
  // Decode attention may read these keys while fill_sampled_tokens() runs: earlier steps wrote
  // them, unless another chunk of this step does.
  batch_.attention.context_is_written = std::ranges::none_of(chunks, &Chunk::adopts_pages);
}

void BatchBuilder::stage_samples(std::span<const Chunk> chunks) {
  const BatchArrays& arrays = memory_.batch();
  StepSamples& samples = samples_[current_set()];
  samples.sampled.clear();
  samples.drafts.clear();
  auto* parameters = reinterpret_cast<ops::SamplingRow*>(arrays.parameters.host);
  for (size_t b = 0; b < chunks.size(); ++b) {
    if (!chunks[b].samples) continue;
    const size_t row = samples.sampled.size();
    const int32_t batch_row = arrays.cu_seqlens.i32()[b + 1] - 1;
    arrays.rows.i32()[row] = batch_row;
    parameters[row] = sampling_row(chunks[b]);
    if (limits_.num_mtp_drafts > 0)
      stage_draft_sample(memory_.drafts(), sampling_row(chunks[b], 1), static_cast<int64_t>(row),
                         batch_row);
    samples.sampled.push_back(chunks[b].sequence);
    samples.drafts.push_back(chunks[b].draft);
  }
  num_sampled_rows_ = std::ssize(samples.sampled);
}

const model::Batch& BatchBuilder::build(tensor::Stream stream, std::span<const Chunk> shares,
                                        std::span<const model::LayerPages> layer_pages,
                                        bool makes_drafts) {
  // Sort by length, decodes first: attention has different kernels for decodes and for longer
  // chunks (attention_runs.h).
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
  memory_.use_next_set();
  stage_chunks(chunks, width);
  stage_samples(chunks);
  // On a GPU, build_decode builds the batches of decodes only.
  const bool decodes = memory_.is_cpu() && std::ranges::all_of(chunks, [](const Chunk& c) {
                         return c.count == 1 && c.samples;
                       });
  drafts_.stage(chunks, {.makes_drafts = makes_drafts && limits_.num_mtp_drafts > 0,
                         .decodes = decodes,
                         .num_sequences = num_sequences,
                         .num_sampled_rows = num_sampled_rows_});
  memory_.upload(stream, num_sequences * width);
  lay_out(memory_.batch(), limits_, num_tokens, width, layer_pages, batch_);
  return batch_;
}

const model::Batch& BatchBuilder::build_decode(tensor::Stream stream, std::span<const Chunk> chunks,
                                               std::span<const model::LayerPages> layer_pages,
                                               const DecodeShape& shape) {
  const auto num_sequences = static_cast<int64_t>(chunks.size());
  SLX_CHECK(num_sequences <= shape.num_sequences && shape.num_sequences <= limits_.max_sequences &&
                shape.num_sequences <= limits_.max_tokens,
            "{} sequences, {} expected", num_sequences, shape.num_sequences);
  // The stride of page table rows is fixed, since it is part of the recorded shape.
  const int64_t width = limits_.max_pages;
  memory_.use_next_set();
  stage_chunks(chunks, width);
  stage_samples(chunks);
  SLX_CHECK(std::ssize(sampled()) == num_sequences, "{} of {} chunks are sampled", sampled().size(),
            num_sequences);
  pad_decode(memory_.batch(), num_sequences, shape.num_sequences);
  if (limits_.num_mtp_drafts > 0)
    for (int64_t b = num_sequences; b < shape.num_sequences; ++b)
      pad_draft_row(memory_.drafts(), b);
  num_sampled_rows_ = shape.num_sequences;
  drafts_.stage(chunks, {.makes_drafts = shape.makes_drafts && limits_.num_mtp_drafts > 0,
                         .decodes = true,
                         .num_sequences = shape.num_sequences,
                         .num_sampled_rows = num_sampled_rows_});
  batch_.attention.cu_seqlens = {memory_.batch().cu_seqlens.i32(),
                                 static_cast<size_t>(shape.num_sequences) + 1};
  memory_.upload(stream, num_sequences * width);
  lay_out(memory_.batch(), limits_, shape.num_sequences, width, layer_pages, batch_);
  batch_.attention.cu_seqlens = {};
  batch_.attention.context_lens = {};
  batch_.attention.max_query_len = 1;
  batch_.attention.max_key_len = shape.max_key_len;
  return batch_;
}

const std::vector<SamplingGroup>& BatchBuilder::group_samples(int64_t max_rows) {
  const BatchArrays& arrays = memory_.batch();
  cut_groups(arrays.rows,
             {arrays.parameters.as_sampling_rows(), arrays.sampled_tokens, arrays.sampled_log_probs,
              num_sampled_rows_},
             max_rows, groups_);
  return groups_;
}

StepSamples& BatchBuilder::await_samples(tensor::Stream stream) {
  StepSamples& samples = samples_[current_set()];
  samples.tokens = memory_.batch().sampled_tokens.i32();
  samples.log_probs = memory_.batch().sampled_log_probs.f32();
  samples.draft_tokens = memory_.drafts().tokens.i32();
  samples.draft_stride = limits_.max_sequences;
  samples.num_draft_passes = drafts_.num_passes();
  samples.is_ready.record(stream);
  return samples;
}

}  // namespace slimexx::rollout

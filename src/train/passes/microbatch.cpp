#include "train/passes/microbatch.h"

#include <algorithm>

#include "slimexx/base/check.h"
#include "slimexx/model/tp_rows.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor upload_ints(const ops::Context& ctx, const std::vector<int32_t>& values) {
  const Tensor t = ctx.arena.allocate(DType::kI32, {static_cast<int64_t>(values.size())});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

// Allocates `capacity` elements.
Tensor upload_ints(const ops::Context& ctx, const std::vector<int32_t>& values, int64_t capacity) {
  const Tensor t = ctx.arena.allocate(DType::kI32, {capacity}).rows(0, std::ssize(values));
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

struct PackedRows {
  std::vector<int32_t> tokens, positions;  // [T]
  std::vector<int32_t> rows, targets;      // [R]
};

// The rank with the most rows.
int largest_rank(const model::ContextShards& shards) {
  const auto largest = std::ranges::max_element(shards.ranges, {}, &dist::Range::size);
  return static_cast<int>(largest - shards.ranges.begin());
}

// Fills `ranges` with the rows of each rank; with `equal`, every rank gets as many as the largest.
model::ContextRows upload_shards(const ops::Context& ctx, const model::ContextShards& shards,
                                 bool equal, std::vector<dist::Range>& ranges) {
  ranges = shards.ranges;
  const int64_t most = ranges[static_cast<size_t>(largest_rank(shards))].size();
  if (equal) std::ranges::fill(ranges, dist::Range{0, most});
  return {.ranges = ranges,
          .sequence_rows = upload_ints(ctx, shards.sequence_rows),
          .rank_rows = upload_ints(ctx, shards.rank_rows)};
}

// Page tables for the keys of a layout's sequences, on CUDA. A plan reserves pages for any lengths
// of this many sequences.
void page_context(const ops::Context& ctx, Microbatch& out,
                  const std::vector<int32_t>& sequence_of_chunk) {
  const int64_t num_sequences = std::ssize(out.cu_sequences) - 1;
  const model::ContextPages pages = model::list_pages(out.token_shards, out.cu_sequences);
  const int64_t most = model::bound_pages(out.cu_sequences.back(), num_sequences);
  const int64_t num_pages = ctx.planning() ? most : std::ssize(pages.rows) / model::kContextPage;
  std::vector<int32_t> rows = pages.rows, table;
  rows.resize(static_cast<size_t>(num_pages * model::kContextPage));
  out.batch.context.page_rows = upload_ints(ctx, rows);
  const auto chunks = static_cast<int64_t>(sequence_of_chunk.size());
  for (const int32_t b : sequence_of_chunk)
    for (int64_t page = 0; page < pages.most_pages; ++page)
      table.push_back(
          std::min(pages.first_page[static_cast<size_t>(b)] + static_cast<int32_t>(page),
                   static_cast<int32_t>(num_pages) - 1));
  const int cp_chunks = 2;  // per sequence and rank
  ops::AttentionLayout& layout = out.batch.attention;
  layout.page_table = upload_ints(ctx, table, cp_chunks * num_sequences * pages.most_pages)
                          .reshaped({chunks, pages.most_pages});
  layout.page_tokens = model::kContextPage;
  layout.device_context_lens = upload_ints(ctx, out.context_lens);
  layout.max_split_tokens = 0;  // chunks are long: no split
  out.batch.sequences.cu_seqlens = out.cu_sequences;
  out.batch.sequences.device_cu_seqlens = upload_ints(ctx, out.cu_sequences);
  std::vector<int32_t> spans;  // this rank's chunks, per sequence
  for (int64_t b = 0; b < num_sequences; ++b) {
    const auto s = static_cast<size_t>(b);
    const int64_t length = out.cu_sequences[s + 1] - out.cu_sequences[s];
    for (const dist::Range& chunk :
         model::context_chunks(length, ctx.groups.cp.size(), ctx.groups.cp.rank()))
      for (const int64_t position : {chunk.begin, chunk.end})
        spans.push_back(static_cast<int32_t>(position));
  }
  out.batch.sequences.query_spans = upload_ints(ctx, spans).reshaped({num_sequences, 4});
}

// Reduces the packed rows to this rank's share and lays out its chunks.
void shard_context(const ops::Context& ctx, bool of_largest_rank, Microbatch& out,
                   PackedRows& packed) {
  const int cp = ctx.groups.cp.size();
  const bool on_cpu = ctx.device().is_cpu();
  const std::vector<int32_t> starts = out.cu_seqlens;
  std::vector<model::SequenceRows> of_tokens, of_rows;
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    const int64_t length = starts[b + 1] - starts[b];
    const int64_t num_rows = out.cu_rows[b + 1] - out.cu_rows[b];
    of_tokens.push_back({length, {0, length}});
    of_rows.push_back({length, {length - 1 - num_rows, length - 1}});
  }
  out.token_shards = model::shard_rows(of_tokens, cp);
  out.row_shards = model::shard_rows(of_rows, cp);
  out.context_rank = of_largest_rank ? largest_rank(out.token_shards) : ctx.groups.cp.rank();
  const int rank = out.context_rank;
  const int rank_of_rows = of_largest_rank ? largest_rank(out.row_shards) : rank;
  std::vector<int32_t> sequence_of_chunk;
  out.cu_sequences = starts;
  out.cu_seqlens.assign(1, 0);
  out.context_lens.clear();
  out.key_starts.clear();
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    const int64_t length = starts[b + 1] - starts[b];
    for (const dist::Range& chunk : model::context_chunks(length, cp, rank)) {
      if (!on_cpu && chunk.size() == 0) continue;
      sequence_of_chunk.push_back(static_cast<int32_t>(b));
      out.cu_seqlens.push_back(out.cu_seqlens.back() + static_cast<int32_t>(chunk.size()));
      out.context_lens.push_back(static_cast<int32_t>(chunk.begin));
      out.key_starts.push_back(starts[b]);
    }
  }
  packed.tokens = model::take_share(out.token_shards, rank, packed.tokens);
  packed.positions = model::take_share(out.token_shards, rank, packed.positions);
  packed.targets = model::take_share(out.row_shards, rank_of_rows, packed.targets);
  packed.rows = model::take_share(out.row_shards, rank_of_rows, packed.rows);
  const int64_t first = out.token_shards.ranges[static_cast<size_t>(rank)].begin;
  for (int32_t& row : packed.rows)  // from the batch's numbering to this rank's
    row = out.token_shards.rank_rows[static_cast<size_t>(row)] - static_cast<int32_t>(first);
  out.batch.context = upload_shards(ctx, out.token_shards, of_largest_rank, out.token_ranges);
  out.loss_rows = upload_shards(ctx, out.row_shards, of_largest_rank, out.row_ranges);
  out.batch.attention.context_lens = out.context_lens;
  if (!on_cpu) return page_context(ctx, out, sequence_of_chunk);
  out.batch.attention.key_starts = out.key_starts;
  out.batch.attention.num_keys = starts.back();
}

// Per sequence, the rows of this tp rank within this cp rank's chunks.
void list_own_sequences(const ops::Context& ctx, Microbatch& out) {
  const bool is_sharded = out.batch.context.is_sharded();
  const std::vector<int32_t>& starts = is_sharded ? out.cu_sequences : out.cu_seqlens;
  const dist::Range own = model::own_rows(out.batch, ctx.groups);
  int64_t end = 0;
  out.own_cu_seqlens = {0};
  out.sequence_lengths.clear();
  for (size_t b = 0; b + 1 < starts.size(); ++b) {
    out.sequence_lengths.push_back(starts[b + 1] - starts[b]);
    for (const dist::Range& chunk :
         model::context_chunks(out.sequence_lengths.back(), ctx.groups.cp.size(), out.context_rank))
      end += chunk.size();
    out.own_cu_seqlens.push_back(
        static_cast<int32_t>(std::clamp<int64_t>(end - own.begin, 0, own.size())));
  }
  out.batch.own_sequences = {.cu_seqlens = out.own_cu_seqlens, .lengths = out.sequence_lengths};
  if (ctx.device().is_cpu()) return;
  out.batch.own_sequences.device_cu_seqlens = upload_ints(ctx, out.own_cu_seqlens);
  out.batch.own_sequences.device_lengths = upload_ints(ctx, out.sequence_lengths);
}

}  // namespace

std::vector<int64_t> lengths_of(std::span<const Sample> samples) {
  std::vector<int64_t> lengths;
  for (const Sample& sample : samples) lengths.push_back(std::ssize(sample.tokens));
  return lengths;
}

int64_t count_tokens(std::span<const Sample> samples, std::span<const int64_t> indices) {
  int64_t num_tokens = 0;
  for (const int64_t i : indices) num_tokens += std::ssize(samples[static_cast<size_t>(i)].tokens);
  return num_tokens;
}

model::HeadRows make_head_rows(const ops::Context& ctx, int64_t vocab_size,
                               std::span<const dist::Range> tp_rows,
                               const std::vector<int32_t>& rows,
                               const std::vector<int32_t>& targets,
                               std::vector<dist::Range>& tp_ranges) {
  tp_ranges = model::split_selected_rows(ctx, tp_rows, rows);
  if (tp_rows.empty()) return {upload_ints(ctx, rows), upload_ints(ctx, targets)};
  const Tensor own_rows = model::select_own_rows(ctx, tp_rows, tp_ranges, rows);
  const dist::Range own = model::own_vocabulary(ctx, vocab_size);
  std::vector<int32_t> own_targets;
  for (const int32_t target : targets)
    own_targets.push_back(
        target >= own.begin && target < own.end ? target - static_cast<int32_t>(own.begin) : -1);
  return {own_rows, upload_ints(ctx, own_targets), tp_ranges};
}

void build_microbatch(const ops::Context& ctx, int64_t vocab_size, std::span<const Sample> samples,
                      std::span<const int64_t> indices, MeasuredRank measured, Microbatch& out) {
  PackedRows packed;
  auto& [tokens, positions, rows, targets] = packed;
  out.cu_seqlens = {0};
  out.cu_rows = {0};
  for (int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    const auto length = static_cast<int64_t>(sample.tokens.size());
    SLX_CHECK(sample.response_length >= 1 && sample.response_length < length,
              "a response of {} tokens does not fit in a sample of {}", sample.response_length,
              length);
    const auto start = static_cast<int32_t>(tokens.size());
    for (int64_t i = 0; i < length; ++i) {
      tokens.push_back(sample.tokens[static_cast<size_t>(i)]);
      positions.push_back(static_cast<int32_t>(i));
    }
    // The row before a response token predicts it.
    for (int64_t i = length - sample.response_length; i < length; ++i) {
      rows.push_back(start + static_cast<int32_t>(i) - 1);
      targets.push_back(sample.tokens[static_cast<size_t>(i)]);
    }
    out.cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
    out.cu_rows.push_back(static_cast<int32_t>(rows.size()));
  }
  out.num_rows = static_cast<int64_t>(rows.size());
  const bool of_largest_rank = ctx.planning() && measured == MeasuredRank::kLargest;
  if (ctx.groups.cp.size() > 1) shard_context(ctx, of_largest_rank, out, packed);
  out.num_tokens = static_cast<int64_t>(tokens.size());
  out.num_own_rows = static_cast<int64_t>(rows.size());
  out.batch.tokens = upload_ints(ctx, tokens);
  out.batch.positions = upload_ints(ctx, positions);
  out.tp_rows = model::split_over_tp(ctx, out.num_tokens);
  out.batch.tp_rows = out.tp_rows;
  out.batch.own_vocabulary = model::select_own_tokens(ctx, vocab_size, tokens);
  out.head_rows = make_head_rows(ctx, vocab_size, out.tp_rows, rows, targets, out.tp_ranges);
  out.batch.attention.cu_seqlens = out.cu_seqlens;
  list_own_sequences(ctx, out);
  if (ctx.device().is_cpu()) return;
  out.batch.attention.device_cu_seqlens = upload_ints(ctx, out.cu_seqlens);
  out.device_cu_rows = upload_ints(ctx, out.cu_rows);
}

Tensor upload_rows(const ops::Context& ctx, const Microbatch& microbatch,
                   std::span<const Sample> samples, std::span<const int64_t> indices,
                   std::vector<float> Sample::*field) {
  if (!indices.empty() && (samples[static_cast<size_t>(indices[0])].*field).empty()) return {};
  std::vector<float> values;
  for (int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    const std::vector<float>& own = sample.*field;
    SLX_CHECK_EQ(static_cast<int64_t>(own.size()), sample.response_length);
    values.insert(values.end(), own.begin(), own.end());
  }
  const Tensor t = ctx.arena.allocate(DType::kF32, {microbatch.num_rows});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

}  // namespace slimexx::train

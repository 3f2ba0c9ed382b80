#include "slimexx/model/tp_rows.h"

#include <algorithm>

namespace slimexx::model {

std::vector<dist::Range> split_over_tp(const ops::Context& ctx, int64_t num_rows) {
  const int ranks = ctx.groups.tp.size();
  if (ranks == 1) return {};
  std::vector<dist::Range> ranges = dist::split_range(num_rows, ranks, 1);
  // The first range is the largest; every rank plans for that size.
  if (ctx.planning()) std::fill(ranges.begin() + 1, ranges.end(), ranges[0]);
  return ranges;
}

std::vector<dist::Range> repeat_over_tp(const ops::Context& ctx, int64_t num_rows) {
  const auto ranks = static_cast<size_t>(ctx.groups.tp.size());
  if (ranks == 1) return {};
  return std::vector<dist::Range>(ranks, dist::Range{0, num_rows});
}

bool has_all_rows(const Batch& batch) { return !batch.tp_rows.empty() && batch.repeats_rows; }

Tensor gather_tp_rows(const ops::Context& ctx, const Batch& batch, Tensor own) {
  if (batch.tp_rows.empty() || has_all_rows(batch)) return own;
  const Tensor all = ctx.arena.allocate(own.dtype(), {batch.tokens.dim(0), own.dim(1)});
  ctx.groups.tp.gather_shares(ctx.stream, all, own, batch.tp_rows);
  return all;
}

dist::Range own_vocabulary(const ops::Context& ctx, int64_t vocab_size) {
  const int64_t width = vocab_size / ctx.groups.tp.size(), first = ctx.groups.tp.rank() * width;
  return {first, first + width};
}

VocabularyTokens select_own_tokens(const ops::Context& ctx, int64_t vocab_size,
                                   std::span<const int32_t> tokens) {
  if (ctx.groups.tp.size() == 1) return {};
  const dist::Range own = own_vocabulary(ctx, vocab_size);
  std::vector<int32_t> rows, ids;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < own.begin || tokens[i] >= own.end) continue;
    rows.push_back(static_cast<int32_t>(i));
    ids.push_back(tokens[i] - static_cast<int32_t>(own.begin));
  }
  if (ctx.planning()) {  // plan for all tokens, so that all ranks plan the same size
    rows.resize(tokens.size());
    ids.resize(tokens.size());
  }
  // Memory use must not depend on the tokens: always allocate for all tokens.
  const auto upload = [&](const std::vector<int32_t>& values) {
    const Tensor t =
        ctx.arena.allocate(DType::kI32, {std::ssize(tokens)}).rows(0, std::ssize(values));
    tensor::upload(ctx.stream, t, values.data());
    return t;
  };
  const Tensor own_rows = upload(rows);
  return {own_rows, upload(ids)};
}

std::vector<dist::Range> split_selected_rows(const ops::Context& ctx,
                                             std::span<const dist::Range> tp_rows,
                                             std::span<const int32_t> rows) {
  std::vector<dist::Range> ranges;
  for (const dist::Range& range : tp_rows) {
    const auto index_of = [&](int64_t row) {
      return std::ranges::lower_bound(rows, row) - rows.begin();
    };
    ranges.push_back({index_of(range.begin), index_of(range.end)});
    if (ctx.planning()) ranges.back() = {0, std::min(std::ssize(rows), range.size())};
  }
  return ranges;
}

Tensor select_own_rows(const ops::Context& ctx, std::span<const dist::Range> tp_rows,
                       std::span<const dist::Range> tp_ranges, std::span<const int32_t> rows) {
  const auto rank = static_cast<size_t>(ctx.groups.tp.rank());
  const dist::Range own = tp_ranges[rank];
  std::vector<int32_t> own_rows;
  for (int64_t i = own.begin; i < own.end; ++i)
    own_rows.push_back(rows[static_cast<size_t>(i)] - static_cast<int32_t>(tp_rows[rank].begin));
  const Tensor t = ctx.arena.allocate(DType::kI32, {own.size()});
  tensor::upload(ctx.stream, t, own_rows.data());
  return t;
}

}  // namespace slimexx::model

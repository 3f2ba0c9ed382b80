#include "slimexx/model/context_shards.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::model {

std::array<dist::Range, 2> context_chunks(int64_t length, int cp, int rank) {
  SLX_CHECK(length >= 0 && 0 <= rank && rank < cp, "{} tokens cannot be sharded for rank {} of {}",
            length, rank, cp);
  const int64_t chunks = 2 * cp;
  const auto chunk = [&](int64_t c) {
    return dist::Range{length * c / chunks, length * (c + 1) / chunks};
  };
  return {chunk(rank), chunk(chunks - 1 - rank)};
}

ContextShards shard_rows(std::span<const SequenceRows> sequences, int cp) {
  ContextShards shards;
  for (int rank = 0; rank < cp; ++rank) {
    const int64_t begin = std::ssize(shards.sequence_rows);
    int64_t first = 0;  // the sequence's first row in the batch
    for (const auto& [length, rows] : sequences) {
      for (const dist::Range& chunk : context_chunks(length, cp, rank))
        for (int64_t p = std::max(chunk.begin, rows.begin); p < std::min(chunk.end, rows.end); ++p)
          shards.sequence_rows.push_back(static_cast<int32_t>(first + p - rows.begin));
      first += rows.size();
    }
    shards.ranges.push_back({begin, std::ssize(shards.sequence_rows)});
  }
  shards.rank_rows.resize(shards.sequence_rows.size());
  for (size_t i = 0; i < shards.sequence_rows.size(); ++i)
    shards.rank_rows[static_cast<size_t>(shards.sequence_rows[i])] = static_cast<int32_t>(i);
  return shards;
}

ContextPages list_pages(const ContextShards& shards, std::span<const int32_t> cu_seqlens) {
  ContextPages pages;
  for (size_t b = 0; b + 1 < cu_seqlens.size(); ++b) {
    const int64_t first = std::ssize(pages.rows) / kContextPage;
    pages.first_page.push_back(static_cast<int32_t>(first));
    for (int32_t i = cu_seqlens[b]; i < cu_seqlens[b + 1]; ++i)
      pages.rows.push_back(shards.rank_rows[static_cast<size_t>(i)]);
    const int64_t count = (std::ssize(pages.rows) + kContextPage - 1) / kContextPage - first;
    pages.rows.resize(static_cast<size_t>((first + count) * kContextPage));
    pages.most_pages = std::max(pages.most_pages, count);
  }
  return pages;
}

int64_t bound_pages(int64_t num_rows, int64_t num_sequences) {
  return num_rows / kContextPage + num_sequences;
}

std::vector<int32_t> take_share(const ContextShards& shards, int rank,
                                std::span<const int32_t> values) {
  SLX_CHECK_EQ(values.size(), shards.sequence_rows.size());
  const dist::Range range = shards.ranges[static_cast<size_t>(rank)];
  std::vector<int32_t> share;
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int32_t row = shards.sequence_rows[static_cast<size_t>(i)];
    share.push_back(values[static_cast<size_t>(row)]);
  }
  return share;
}

}  // namespace slimexx::model

// Which rows of a microbatch a rank of context parallelism holds. Each sequence is cut into 2 * cp
// chunks, and rank r holds chunks r and 2 * cp - 1 - r of every one: an early chunk, whose queries
// see few keys, and a late one, so that ranks have about the same work. Chunks of one sequence
// differ by a token at most and may be empty. Pure functions.
//
// Rows have two orders: by sequence, as one rank packs them; and by rank, those of rank 0 first,
// and of each rank by sequence.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/dist/ranges.h"

namespace slimexx::model {

// Positions of a sequence of `length` tokens, ascending.
std::array<dist::Range, 2> context_chunks(int64_t length, int cp, int rank);

// Positions of a sequence that have a row: all, or those that predict a response.
struct SequenceRows {
  int64_t length = 0;
  dist::Range rows;
};

struct ContextShards {
  std::vector<dist::Range> ranges;     // by rank: its rows in the order by rank
  std::vector<int32_t> sequence_rows;  // of each row by rank, its place in the order by sequence
  std::vector<int32_t> rank_rows;      // the inverse
};
ContextShards shard_rows(std::span<const SequenceRows> sequences, int cp);

// Sequences by pages, each from a page's first place on: rows of keys as attention's kernels take
// them from a cache.
inline constexpr int64_t kContextPage = 128;
struct ContextPages {
  std::vector<int32_t> rows;        // [pages * kContextPage] the row by rank, or any behind an end
  std::vector<int32_t> first_page;  // by sequence
  int64_t most_pages = 0;           // of a sequence
};
// `cu_seqlens` of the order by sequence.
ContextPages list_pages(const ContextShards& shards, std::span<const int32_t> cu_seqlens);
// The most pages of so many rows in so many sequences.
int64_t bound_pages(int64_t num_rows, int64_t num_sequences);

// A rank's of values by sequence.
std::vector<int32_t> take_share(const ContextShards& shards, int rank,
                                std::span<const int32_t> values);

}  // namespace slimexx::model

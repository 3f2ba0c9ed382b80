// Assigns rows of a microbatch to the ranks of context parallelism. Each sequence is cut into
// 2 * cp chunks; rank r holds chunks r and 2 * cp - 1 - r of every sequence: an early chunk, whose
// queries see few keys, and a late one, so that ranks have about the same work. Chunk lengths of
// one sequence differ by at most one token; chunks may be empty. Pure functions.
//
// Rows have two orders: by sequence, as a single rank packs them; and by rank, with the rows of
// rank 0 first and the rows of each rank by sequence.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/dist/ranges.h"

namespace slimexx::model {

// Positions of a sequence of `length` tokens, ascending.
std::array<dist::Range, 2> context_chunks(int64_t length, int cp, int rank);

// Positions of a sequence that have a row: all of them, or only those that predict response tokens.
struct SequenceRows {
  int64_t length = 0;
  dist::Range rows;
};

struct ContextShards {
  std::vector<dist::Range> ranges;     // by rank: its rows in the order by rank
  std::vector<int32_t> sequence_rows;  // index by rank -> index by sequence
  std::vector<int32_t> rank_rows;      // the inverse
};
ContextShards shard_rows(std::span<const SequenceRows> sequences, int cp);

// Pages of key rows, as attention kernels read them from a KV cache. Each sequence starts on a new
// page.
inline constexpr int64_t kContextPage = 128;
struct ContextPages {
  std::vector<int32_t> rows;        // [pages * kContextPage] index by rank; any row in padding
  std::vector<int32_t> first_page;  // by sequence
  int64_t most_pages = 0;           // of one sequence
};
// `cu_seqlens` refers to the order by sequence.
ContextPages list_pages(const ContextShards& shards, std::span<const int32_t> cu_seqlens);
// Upper bound on the pages of `num_rows` rows in `num_sequences` sequences.
int64_t bound_pages(int64_t num_rows, int64_t num_sequences);

// The values of one rank's rows; `values` are by sequence.
std::vector<int32_t> take_share(const ContextShards& shards, int rank,
                                std::span<const int32_t> values);

}  // namespace slimexx::model

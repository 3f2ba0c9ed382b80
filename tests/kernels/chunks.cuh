// Shared by the cases of latent attention and of the sparse index: sequences of keys with queries
// at some positions, and batches of chunks of these, packed or paged.
#pragma once
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "tests/kernels/fill.cuh"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

// Queries at positions [from, to) of a sequence.
struct Chunk {
  size_t sequence;
  int32_t from, to;
};

class Sequences {
 public:
  // `last`: number of positions at the end of each sequence that have queries; 0: all.
  Sequences(std::vector<int32_t> lengths, int32_t last)
      : lengths_(std::move(lengths)), last_(last), queries_{0}, keys_{0} {
    for (size_t b = 0; b < lengths_.size(); ++b) {
      queries_.push_back(queries_.back() + lengths_[b] - first_query(b));
      keys_.push_back(keys_.back() + lengths_[b]);
    }
  }
  int64_t num_queries() const { return queries_.back(); }
  int64_t num_keys() const { return keys_.back(); }
  // Row of a position among all queries, or all keys; rows are ordered by sequence.
  int64_t query_row(size_t sequence, int32_t position) const {
    return queries_[sequence] + position - first_query(sequence);
  }
  int64_t first_key(size_t sequence) const { return keys_[sequence]; }
  int32_t longest() const { return *std::max_element(lengths_.begin(), lengths_.end()); }
  // One chunk per sequence, with all its queries.
  std::vector<Chunk> whole() const {
    std::vector<Chunk> chunks;
    for (size_t b = 0; b < lengths_.size(); ++b) chunks.push_back({b, first_query(b), lengths_[b]});
    return chunks;
  }

 private:
  int32_t first_query(size_t sequence) const {
    return last_ == 0 ? 0 : std::max(0, lengths_[sequence] - last_);
  }
  std::vector<int32_t> lengths_;
  int32_t last_;
  std::vector<int64_t> queries_, keys_;  // [sequences + 1]
};

// Chunks of up to `most` queries, in random order.
inline std::vector<Chunk> random_chunks(const Sequences& all, int32_t most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Chunk> chunks;
  for (const Chunk& whole : all.whole())
    for (int32_t from = whole.from; from < whole.to;) {
      const int32_t step = 1 + static_cast<int32_t>(random() % static_cast<uint64_t>(most));
      chunks.push_back({whole.sequence, from, std::min(whole.to, from + step)});
      from = chunks.back().to;
    }
  std::shuffle(chunks.begin(), chunks.end(), random);
  return chunks;
}

// The last query of each sequence, then random queries.
inline std::vector<Chunk> decode_steps(const Sequences& all, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Chunk> whole, chunks;
  for (const Chunk& c : all.whole())
    if (c.to > c.from) whole.push_back(c);
  for (size_t i = 0; i < count && !whole.empty(); ++i) {
    const Chunk& c = whole[i % whole.size()];
    const auto queries = static_cast<uint64_t>(c.to - c.from);
    const int32_t p =
        i < whole.size() ? c.to - 1 : c.from + static_cast<int32_t>(random() % queries);
    chunks.push_back({c.sequence, p, p + 1});
  }
  return chunks;
}

// Layout of a batch of chunks. Packed chunks start at position 0; paged ones have pages in random
// order.
struct ChunkLayout {
  std::vector<int32_t> cu{0}, context, table;
  int64_t page_tokens, table_width = 0, key_rows = 0;

  ChunkLayout(const std::vector<Chunk>& chunks, int64_t tokens_a_page, uint64_t seed)
      : page_tokens(tokens_a_page) {
    int64_t pages = 0;
    for (const Chunk& c : chunks) {
      cu.push_back(cu.back() + c.to - c.from);
      context.push_back(c.from);
      table_width = std::max(table_width, pages_of(c));
      pages += pages_of(c);
    }
    key_rows = is_paged() ? std::max<int64_t>(pages, 1) * page_tokens : cu.back();
    std::vector<int32_t> order(static_cast<size_t>(pages));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    table.assign(chunks.size() * static_cast<size_t>(table_width), 0);
    auto next = order.begin();
    for (size_t i = 0; i < chunks.size(); ++i) {
      std::copy_n(next, pages_of(chunks[i]), table.begin() + static_cast<int64_t>(i) * table_width);
      next += pages_of(chunks[i]);
    }
  }
  bool is_paged() const { return page_tokens > 0; }
  int64_t num_queries() const { return cu.back(); }

 private:
  int64_t pages_of(const Chunk& c) const {
    return is_paged() ? (c.to + page_tokens - 1) / page_tokens : 0;
  }
};

// Copies row `blockIdx.x` of a sequence to its page.
static __global__ void scatter_to_pages(uint16_t* pages, const uint16_t* rows, const int32_t* table,
                                        int row, int page_tokens) {
  const int64_t position = blockIdx.x;
  const int64_t slot =
      int64_t{table[position / page_tokens]} * page_tokens + position % page_tokens;
  for (int i = threadIdx.x; i < row; i += blockDim.x)
    pages[slot * row + i] = rows[position * row + i];
}

// Copies the query rows of all chunks, one chunk after another.
template <class T>
void copy_queries(const Array<T>& to, const Array<T>& from, const Sequences& all,
                  const std::vector<Chunk>& chunks, int64_t row) {
  int64_t at = 0;
  for (const Chunk& c : chunks) {
    const int64_t count = c.to - c.from;
    if (count == 0) continue;
    SLX_CUDA(cudaMemcpy(to.data() + at * row, from.data() + all.query_row(c.sequence, c.from) * row,
                        static_cast<size_t>(count * row) * sizeof(T), cudaMemcpyDeviceToDevice));
    at += count;
  }
}

// Copies the keys that each chunk's queries may see. `table`: the layout's page table, on the
// device.
inline void copy_keys(const Bf16Array& to, const Bf16Array& from, const Sequences& all,
                      const std::vector<Chunk>& chunks, const ChunkLayout& layout,
                      const int32_t* table, int64_t row) {
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& c = chunks[i];
    const uint16_t* keys = from.data() + all.first_key(c.sequence) * row;
    if (c.to == 0) continue;
    if (layout.is_paged()) {
      scatter_to_pages<<<static_cast<unsigned>(c.to), 128>>>(
          to.data(), keys, table + static_cast<int64_t>(i) * layout.table_width,
          static_cast<int>(row), static_cast<int>(layout.page_tokens));
      SLX_CUDA(cudaGetLastError());
    } else {
      SLX_CUDA(cudaMemcpy(to.data() + layout.cu[i] * row, keys, static_cast<size_t>(c.to * row) * 2,
                          cudaMemcpyDeviceToDevice));
    }
  }
}

}  // namespace slimexx::kernels::testing

// Checks of latent attention's forward: values, and the same bits for any storage, chunks, batch
// and schedule.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/kernels/latent_attention/latent_case.cuh"
#include "tests/kernels/latent_attention/latent_reference.h"

namespace slimexx::kernels::testing {

struct LatentResult {
  Bits out;  // [queries, heads, values]
  std::vector<float> lse;
};

inline LatentResult run(const LatentOperands& o, const std::vector<Chunk>& chunks,
                        const LatentStorage& storage) {
  const LatentBatch batch(o, chunks, storage);
  expect_status("latent_attention_forward", latent_attention_forward(batch.problem, nullptr),
                cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  batch.workspace->get();  // its guards
  const int64_t rows = batch.layout.num_queries(), row = o.of.heads * o.of.values;
  const Bits all = batch.out.get();
  Bits gaps;
  for (size_t i = 0; i < all.size(); ++i)
    if (static_cast<int64_t>(i) % o.of.out_row() >= row) gaps.push_back(all[i]);
  expect_bits("elements after a row", gaps, Bits(gaps.size(), 0xffff),
              std::max<int64_t>(1, o.of.gap));
  return {pack_rows(all, rows, row, o.of.out_row()), batch.lse.get()};
}

// Runs all queries with bf16 keys; packed if every sequence has queries from its first position on.
inline LatentResult run_whole(const LatentOperands& o) {
  return run(o, o.sequences.whole(), {.page_tokens = o.of.last > 0 ? 64 : 0, .bf16 = true});
}

// Compares the rows of `chunks` in `result` with the same rows of the run with all queries.
inline void compare(const std::string& name, const LatentOperands& o, const LatentResult& expected,
                    const std::vector<Chunk>& chunks, const LatentStorage& storage) {
  const LatentResult got = run(o, chunks, storage);
  const int64_t row = o.of.heads * o.of.values;
  LatentResult want;
  for (const Chunk& c : chunks) {
    const int64_t first = o.sequences.query_row(c.sequence, c.from), count = c.to - c.from;
    const auto out = expected.out.begin() + first * row;
    const auto lse = expected.lse.begin() + first * o.of.heads;
    want.out.insert(want.out.end(), out, out + count * row);
    want.lse.insert(want.lse.end(), lse, lse + count * o.of.heads);
  }
  const std::string what = name + ", page " + std::to_string(storage.page_tokens);
  expect_bits((what + ": out, (query, head) rows").c_str(), got.out, want.out, o.of.values);
  expect_bits((what + ": lse").c_str(), got.lse, want.lse, o.of.heads);
}

inline void check_values(const LatentOperands& o, const LatentResult& got) {
  const LatentReference expected(o);
  Bits out;
  std::vector<float> lse;
  for (const int64_t row : expected.rows) {
    const auto first = got.out.begin() + row * o.of.values;
    out.insert(out.end(), first, first + o.of.values);
    lse.push_back(got.lse[row]);
  }
  const std::string every = " of every " + std::to_string(expected.step) + "th (query, head)";
  expect_close(("out" + every).c_str(), out, expected.out, o.of.values, kWeightSlack);
  expect_close(("lse" + every).c_str(), lse, expected.lse, 1, kLseSlack);
}

// Decode steps with few segments, each computed by a cluster of thread blocks, and with many; some
// sequences have no query.
inline void check_decodes(const LatentOperands& o, const LatentResult& expected, int64_t page,
                          const std::vector<size_t>& counts) {
  using enum LatentRuns;
  for (const size_t count : counts) {
    auto steps = decode_steps(o.sequences, count, static_cast<uint64_t>(page) + count);
    compare(std::to_string(count) + " decodes", o, expected, steps, {page, kAuto});
    for (size_t i = 1; i < steps.size(); i += 5) steps[i].from = steps[i].to;
    compare(std::to_string(count) + " decodes, some without a query", o, expected, steps,
            {page, kAuto});
  }
  const auto one = decode_steps(o.sequences, 1, 1);
  compare("a decode, whole", o, expected, one, {page, kWhole});
  compare("a decode by segments", o, expected, one, {page, kSplit});
}

// One launch with decodes, short chunks and long ones, sorted by length and in random order.
inline void check_mixed(const LatentOperands& o, const LatentResult& expected, int64_t page) {
  using enum LatentRuns;
  std::vector<Chunk> mixed = decode_steps(o.sequences, 6, 2);
  for (const int32_t most : {700, 12, 3}) {
    const auto chunks = random_chunks(o.sequences, most, static_cast<uint64_t>(page + most));
    mixed.insert(mixed.end(), chunks.begin(), chunks.begin() + std::min<size_t>(chunks.size(), 7));
  }
  std::stable_sort(mixed.begin(), mixed.end(),
                   [](const Chunk& a, const Chunk& b) { return a.to - a.from < b.to - b.from; });
  compare("decodes and chunks", o, expected, mixed, {page, kAuto});
  compare("the same, with little room", o, expected, mixed, {page, kTight});
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937_64(7));
  compare("the same, shuffled", o, expected, mixed, {page, kAuto});
}

inline void check_forward(const LatentCase& c, const std::vector<int64_t>& pages,
                          const std::vector<size_t>& decodes) {
  using enum LatentRuns;
  current_case = describe(c);
  current_seed = c.seed;
  const LatentOperands o(c);
  const LatentResult expected = run_whole(o);
  if (c.spread == 0) check_values(o, expected);
  const auto all = o.sequences.whole();
  compare("again", o, expected, all, {c.last > 0 ? 64 : 0, kWhole});
  if (c.last == 0) {
    compare("packed, by segments", o, expected, all, {0, kSplit});
    for (size_t b = 0; b < std::min<size_t>(3, all.size()); ++b)
      compare("a sequence alone", o, expected, {all[b]}, {0, kWhole});
  }
  for (const int64_t page : pages) {
    compare("paged", o, expected, all, {page, kWhole});
    compare("paged, by segments", o, expected, all, {page, kSplit});
    for (const int32_t most : {700, 50})
      compare("chunks", o, expected, random_chunks(o.sequences, most, 3), {page, kAuto});
    check_decodes(o, expected, page, decodes);
    check_mixed(o, expected, page);
  }
}

// Lists of all keys give the same bits as no lists.
inline void check_whole_lists(LatentCase c) {
  current_case = describe(c);
  current_seed = c.seed;
  const LatentResult full = run_whole(LatentOperands(c));
  const int32_t longest = Sequences(c.lengths, c.last).longest();
  for (const int32_t more : {0, 37}) {
    c.list = longest + more;
    const LatentResult got = run_whole(LatentOperands(c));
    expect_bits("out by lists of all keys", got.out, full.out, c.values);
    expect_bits("lse by lists of all keys", got.lse, full.lse, c.heads);
  }
}

}  // namespace slimexx::kernels::testing

// Attention forward on the device: values against a naive fp64 kernel, the same bits across
// schedules, storage, chunks and batches.
//   attention_check tiny | small | values | bits | fp8
// `tiny` and `small` are for compute-sanitizer. Exit status 1 on any difference.
#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/attention.h"
#include "tests/kernels/attention_check_world.cuh"
#include "tests/kernels/need_device.h"

namespace {

using slimexx::kernels::AttentionForward;
using slimexx::kernels::AttentionRuns;
using namespace slimexx::kernels::testing;

int failures = 0;

struct Chunk {
  int sequence, from, to;  // queries [from, to), keys [0, to)
};

struct Result {
  std::vector<uint16_t> out;
  std::vector<uint32_t> lse;
};

template <class T, class S>
std::vector<T> bits(const std::vector<S>& values) {
  std::vector<T> result(values.size());
  std::memcpy(result.data(), values.data(), values.size() * sizeof(T));
  return result;
}

struct Storage {
  int page_tokens = 0;  // 0: packed, whole sequences only
};

enum class Runs {
  kAuto,   // the engine's choice: leading short sequences use split-KV
  kTight,  // like kAuto, with room for partial results of only one token per sequence
  kWhole,  // all sequences use the kernel of whole rows
  kSplit,  // leading sequences with few rows use the decode kernel, all others split-KV
};

AttentionRuns choose_runs(const std::vector<int32_t>& cu, const std::vector<int32_t>& context,
                          int group, Runs kind) {
  using slimexx::kernels::AttentionRun;
  const int64_t most = kind == Runs::kWhole   ? 0
                       : kind == Runs::kTight ? static_cast<int64_t>(cu.size()) - 1
                                              : INT32_MAX;
  AttentionRuns runs = slimexx::kernels::choose_attention_runs(cu, context, group, most);
  if (kind != Runs::kSplit || runs.whole.sequences == 0) return runs;
  AttentionRun& split = runs.split;
  split.sequences += runs.whole.sequences;
  split.max_query_len = std::max(split.max_query_len, runs.whole.max_query_len);
  split.max_key_len = std::max(split.max_key_len, runs.whole.max_key_len);
  return {runs.few, split, {}, cu.back()};
}

Result run(const World& w, const std::vector<Chunk>& chunks, Storage storage, Runs runs,
           uint64_t seed = 1) {
  std::vector<int32_t> cu{0}, context;
  int longest_keys = 0;
  for (const Chunk& c : chunks) {
    cu.push_back(cu.back() + c.to - c.from);
    context.push_back(c.from);
    longest_keys = std::max(longest_keys, c.to);
  }
  const int tokens = cu.back();
  const size_t q_row = size_t(w.hq) * w.d, k_row = size_t(w.hk) * w.d;
  Buffer<Bf16> q(tokens * q_row), out(tokens * q_row);
  Buffer<float> lse(size_t(tokens) * w.hq);
  out.poison();
  lse.poison();
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& c = chunks[i];
    cudaMemcpy(q.data + cu[i] * q_row, w.q.data + (w.starts[c.sequence] + c.from) * q_row,
               (c.to - c.from) * q_row * 2, cudaMemcpyDeviceToDevice);
  }
  const bool paged = storage.page_tokens > 0;
  const int page = paged ? storage.page_tokens : 1;
  const int table_width = (longest_keys + page - 1) / page + 1;
  const int pages = paged ? int(chunks.size()) * table_width + 3 : 0;
  std::vector<int32_t> order(std::max(pages, 1)), table(chunks.size() * table_width, -1);
  for (int i = 0; i < pages; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
  const bool fp8 = paged && w.rounded;
  Buffer<Bf16> k((paged ? size_t(pages) * page : tokens) * k_row), v(k.size);
  Buffer<uint16_t> k_scales(fp8 ? size_t(pages) * page * w.hk : 0), v_scales(k_scales.size);
  k.poison();
  v.poison();
  k_scales.poison();
  v_scales.poison();
  size_t used = 0;
  for (size_t i = 0; paged && i < chunks.size(); ++i) {
    for (int p = 0; p * page < chunks[i].to; ++p) table[i * table_width + p] = order[used++];
  }
  Buffer<int32_t> device_table(table), device_cu(cu), device_context(context);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const Chunk& c = chunks[i];
    const size_t first = w.starts[c.sequence] * k_row;
    if (fp8) {
      const size_t first_head = size_t(w.starts[c.sequence]) * w.hk;
      const auto scatter = [&](Bf16* to, uint16_t* to_scales, const uint8_t* from,
                               const uint16_t* from_scales) {
        scatter_f8<<<c.to, 128>>>(reinterpret_cast<uint8_t*>(to), to_scales, from + first,
                                  from_scales + first_head, device_table.data + i * table_width,
                                  w.hk, w.d, page);
      };
      scatter(k.data, k_scales.data, w.k_bytes.data, w.k_scales.data);
      scatter(v.data, v_scales.data, w.v_bytes.data, w.v_scales.data);
    } else if (paged) {
      for (auto [to, from] : {std::pair{k.data, w.k.data}, std::pair{v.data, w.v.data}}) {
        scatter_pages<<<c.to, 128>>>(to, from + first, device_table.data + i * table_width,
                                     int(k_row), page);
      }
    } else {
      cudaMemcpy(k.data + cu[i] * k_row, w.k.data + first, c.to * k_row * 2,
                 cudaMemcpyDeviceToDevice);
      cudaMemcpy(v.data + cu[i] * k_row, w.v.data + first, c.to * k_row * 2,
                 cudaMemcpyDeviceToDevice);
    }
  }
  AttentionForward a;
  a.q = q.data, a.k = k.data, a.v = v.data, a.out = out.data, a.lse = lse.data;
  a.q_stride = a.out_stride = q_row;
  a.k_stride = a.v_stride = k_row;
  a.cu_seqlens = device_cu.data;
  if (paged) {
    a.context_lens = device_context.data;
    a.page_table = device_table.data;
    a.page_table_stride = table_width;
    a.pages = pages;
    a.page_tokens = page;
  }
  if (fp8) a.k_scales = k_scales.data, a.v_scales = v_scales.data;
  a.tokens = tokens;
  a.query_heads = w.hq, a.kv_heads = w.hk, a.head_dim = w.d;
  a.runs = choose_runs(cu, context, w.hq / w.hk, runs);
  a.scale = w.scale();
  a.workspace_bytes = attention_forward_workspace(a);
  Buffer<uint8_t> workspace(a.workspace_bytes + 16);
  workspace.poison();
  a.workspace = workspace.data;
  check(attention_forward(a, nullptr), "attention_forward");
  check(cudaDeviceSynchronize(), "attention kernels");
  return {bits<uint16_t>(out.read()), bits<uint32_t>(lse.read())};
}

std::vector<Chunk> whole_sequences(const World& w) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < w.lengths.size(); ++i) chunks.push_back({int(i), 0, w.lengths[i]});
  return chunks;
}

// Compares the rows of `chunks` in `result` with the same rows of the whole sequences in
// `expected`.
void compare(const char* name, const World& w, const Result& expected,
             const std::vector<Chunk>& chunks, const Result& result) {
  size_t differing = 0, rows = 0, at = 0;
  std::string first;
  for (const Chunk& c : chunks) {
    for (int p = c.from; p < c.to; ++p, ++at) {
      for (int h = 0; h < w.hq; ++h, ++rows) {
        const size_t e = (size_t(w.starts[c.sequence]) + p) * w.hq + h, r = at * w.hq + h;
        const bool same = expected.lse[e] == result.lse[r] &&
                          std::memcmp(&expected.out[e * w.d], &result.out[r * w.d], w.d * 2) == 0;
        if (same) continue;
        if (differing++ == 0) {
          first = " first: sequence " + std::to_string(c.sequence) + " position " +
                  std::to_string(p) + " head " + std::to_string(h);
        }
      }
    }
  }
  std::printf("bits %-34s hq %d hk %d d %d: %zu of %zu rows differ%s\n", name, w.hq, w.hk, w.d,
              differing, rows, first.c_str());
  failures += differing != 0;
}

float to_float(uint16_t x) {
  const uint32_t wide = uint32_t{x} << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}

void check_values(const World& w, Runs runs, Storage storage) {
  const Result result = run(w, whole_sequences(w), storage, runs);
  Buffer<double> out(size_t(w.tokens) * w.hq * w.d), lse(size_t(w.tokens) * w.hq);
  for (size_t i = 0; i < w.lengths.size(); ++i) {
    const size_t s = w.starts[i];
    attend_naive<<<dim3(w.lengths[i], w.hq), 128, w.lengths[i] * 8>>>(
        out.data + s * w.hq * w.d, lse.data + s * w.hq, w.q.data + s * w.hq * w.d,
        w.k.data + s * w.hk * w.d, w.v.data + s * w.hk * w.d, w.hq, w.hk, w.d, w.scale());
  }
  check(cudaDeviceSynchronize(), "reference");
  const std::vector<double> expected = out.read(), expected_lse = lse.read();
  double error = 0, norm = 0, worst = 0, worst_lse = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = to_float(result.out[i]) - expected[i];
    error += difference * difference;
    norm += expected[i] * expected[i];
    if (!(std::abs(difference) <= worst)) worst = std::abs(difference), worst_at = i;
  }
  for (size_t i = 0; i < expected_lse.size(); ++i) {
    float value;
    std::memcpy(&value, &result.lse[i], 4);
    const double difference = std::abs(value - expected_lse[i]);
    if (!(difference <= worst_lse)) worst_lse = difference;
  }
  const double relative = std::sqrt(error / norm);
  // Weights and results are rounded to bf16: at most 2^-9 each, 1.7e-3 rms together.
  const bool good = relative < 4e-3 && worst < 3e-2 && worst_lse < 2e-5;
  std::printf(
      "values hq %d hk %d d %d tokens %d runs %d page %d: relative %.2e, worst %.2e at "
      "token %zu head %zu column %zu, lse %.2e %s\n",
      w.hq, w.hk, w.d, w.tokens, int(runs), storage.page_tokens, relative, worst,
      worst_at / (w.hq * w.d), worst_at / w.d % w.hq, worst_at % w.d, worst_lse,
      good ? "" : "FAILED");
  failures += !good;
}

std::vector<Chunk> random_chunks(const World& w, int most, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < w.lengths.size(); ++i) {
    for (int from = 0; from < w.lengths[i];) {
      const int to = std::min<int>(w.lengths[i], from + 1 + random() % most);
      chunks.push_back({int(i), from, to});
      from = to;
    }
  }
  std::shuffle(chunks.begin(), chunks.end(), random);
  return chunks;
}

std::vector<Chunk> decode_steps(const World& w, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < count; ++i) {
    const int sequence = int(random() % w.lengths.size());
    const int p =
        i < w.lengths.size() ? w.lengths[sequence] - 1 : int(random() % w.lengths[sequence]);
    chunks.push_back({sequence, p, p + 1});
  }
  return chunks;
}

// Rows of a fused projection: a token's row has its queries, keys and values.
void check_fused_rows(const World& w, const Result& expected) {
  const size_t q_row = size_t(w.hq) * w.d, k_row = size_t(w.hk) * w.d, row = q_row + 2 * k_row;
  Buffer<Bf16> fused(w.tokens * row), out(w.tokens * row);
  Buffer<float> lse(size_t(w.tokens) * w.hq);
  out.poison();
  const auto place = [&](size_t column, const Buffer<Bf16>& from, size_t width) {
    check(cudaMemcpy2D(fused.data + column, row * 2, from.data, width * 2, width * 2, w.tokens,
                       cudaMemcpyDeviceToDevice),
          "copy of columns");
  };
  place(0, w.q, q_row);
  place(q_row, w.k, k_row);
  place(q_row + k_row, w.v, k_row);
  std::vector<int32_t> cu = w.starts;
  cu.push_back(w.tokens);
  Buffer<int32_t> device_cu(cu);
  AttentionForward a;
  a.q = fused.data, a.k = fused.data + q_row, a.v = fused.data + q_row + k_row;
  a.out = out.data, a.lse = lse.data;
  a.q_stride = a.k_stride = a.v_stride = a.out_stride = row;
  a.cu_seqlens = device_cu.data;
  a.tokens = w.tokens;
  a.query_heads = w.hq, a.kv_heads = w.hk, a.head_dim = w.d;
  a.runs = choose_runs(cu, {}, w.hq / w.hk, Runs::kWhole);
  a.scale = w.scale();
  a.workspace_bytes = attention_forward_workspace(a);
  Buffer<uint8_t> workspace(a.workspace_bytes);
  a.workspace = workspace.data;
  check(attention_forward(a, nullptr), "attention_forward");
  Buffer<Bf16> dense(w.tokens * q_row);
  check(cudaMemcpy2D(dense.data, q_row * 2, out.data, row * 2, q_row * 2, w.tokens,
                     cudaMemcpyDeviceToDevice),
        "copy of columns");
  const Result result{bits<uint16_t>(dense.read()), bits<uint32_t>(lse.read())};
  compare("fused rows", w, expected, whole_sequences(w), result);
  const std::vector<uint16_t> wide = bits<uint16_t>(out.read());
  size_t touched = 0;
  for (size_t i = 0; i < wide.size(); ++i) touched += i % row >= q_row && wide[i] != 0xffff;
  if (touched != 0) std::printf("fused rows: %zu values outside the output written\n", touched);
  failures += touched != 0;
}

// At most 16 query rows per kv head: decode steps and chunks of a few tokens. The largest batches
// are large enough that a thread block computes a whole sequence.
void check_few_rows(const World& w, const Result& expected, int page) {
  constexpr size_t kMany = 640;
  const std::string suffix = ", page " + std::to_string(page);
  const size_t many = kMany / w.hk;
  auto steps = decode_steps(w, many, page + 1);
  for (size_t i = 5; i < steps.size(); i += 11) steps[i].from = steps[i].to;  // no query
  compare(("many decode steps" + suffix).c_str(), w, expected, steps,
          run(w, steps, {page}, Runs::kAuto));
  const auto chunks = random_chunks(w, std::max(1, 16 * w.hk / w.hq), page);
  for (const size_t count : {size_t{3}, size_t{40}, many}) {
    const std::vector<Chunk> some(chunks.begin(),
                                  chunks.begin() + std::min<size_t>(chunks.size(), count));
    compare((std::to_string(some.size()) + " chunks of few rows" + suffix).c_str(), w, expected,
            some, run(w, some, {page}, Runs::kSplit));
  }
}

// Launches decode steps, short chunks and long ones together: sorted, so that each run of sequences
// has its own kernel; with little room for partial results; and in random order.
void check_mixed(const World& w, const Result& expected, std::vector<Chunk> mixed, int page) {
  const std::string suffix = ", page " + std::to_string(page);
  for (const int most : {700, 12}) {
    const auto chunks = random_chunks(w, most, page);
    mixed.insert(mixed.end(), chunks.begin(), chunks.begin() + std::min<size_t>(chunks.size(), 9));
  }
  std::stable_sort(mixed.begin(), mixed.end(),
                   [](const Chunk& a, const Chunk& b) { return a.to - a.from < b.to - b.from; });
  compare(("decode and chunks" + suffix).c_str(), w, expected, mixed,
          run(w, mixed, {page}, Runs::kAuto));
  compare(("the same, tight" + suffix).c_str(), w, expected, mixed,
          run(w, mixed, {page}, Runs::kTight));
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937_64(page));
  compare(("the same, shuffled" + suffix).c_str(), w, expected, mixed,
          run(w, mixed, {page}, Runs::kAuto));
}

// More segments than a cluster has thread blocks, or than a block with few rows loops over.
void check_long(const World& w) {
  using enum Runs;
  const auto all = whole_sequences(w);
  const Result expected = run(w, all, {}, kWhole);
  compare("long, by segments", w, expected, all, run(w, all, {}, kSplit));
  for (const size_t count : {size_t{1}, size_t{8}, size_t{200}}) {
    const auto steps = decode_steps(w, count, 5);
    compare(("long, " + std::to_string(count) + " decode steps").c_str(), w, expected, steps,
            run(w, steps, {64}, kAuto));
  }
  check_mixed(w, expected, decode_steps(w, 40, 6), 64);
}

void check_bits(const World& w, const std::vector<int>& page_sizes, size_t decodes) {
  using enum Runs;
  const auto all = whole_sequences(w);
  const Result expected = run(w, all, {}, kWhole);
  compare("repeated", w, expected, all, run(w, all, {}, kAuto));
  compare("packed, by segments", w, expected, all, run(w, all, {}, kSplit));
  check_fused_rows(w, expected);
  for (const Chunk& c : all) {
    if (c.sequence < 3) compare("packed, alone", w, expected, {c}, run(w, {c}, {}, kWhole));
  }
  for (int page : page_sizes) {
    const std::string suffix = ", page " + std::to_string(page);
    compare(("paged" + suffix).c_str(), w, expected, all, run(w, all, {page}, kWhole, page));
    const auto chunks = random_chunks(w, 700, page);
    compare(("chunked" + suffix).c_str(), w, expected, chunks, run(w, chunks, {page}, kWhole));
    compare(("chunked, auto" + suffix).c_str(), w, expected, chunks, run(w, chunks, {page}, kAuto));
    const auto few = random_chunks(w, 90, page);
    const std::vector<Chunk> some(few.begin(), few.begin() + std::min<size_t>(few.size(), 40));
    compare(("short chunks, segments" + suffix).c_str(), w, expected, some,
            run(w, some, {page}, kSplit));
    const auto steps = decode_steps(w, decodes, page);
    compare(("decode" + suffix).c_str(), w, expected, steps, run(w, steps, {page}, kAuto));
    check_mixed(w, expected, steps, page);
    check_few_rows(w, expected, page);
    const std::vector<Chunk> one{steps[0]};
    compare(("decode alone" + suffix).c_str(), w, expected, one, run(w, one, {page}, kAuto));
    compare(("decode, whole rows" + suffix).c_str(), w, expected, one, run(w, one, {page}, kWhole));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "bits";
  using enum Runs;
  need_device();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (mode == "tiny") {  // two segments of keys, partial blocks, both schedules, packed and paged
    World fp8(2, 1, 128, {3, 1100}, 6), fp8_narrow(3, 1, 64, {1100, 65}, 7);
    fp8.round(Magnitudes::kMixed);
    fp8_narrow.round(Magnitudes::kEqual);
    World wide(2, 1, 128, {3, 1100}, 6), narrow(3, 1, 64, {1100, 65}, 7);
    for (const World* world : {&wide, &narrow, &fp8, &fp8_narrow}) {
      const World& w = *world;
      const auto all = whole_sequences(w);
      const Result expected = run(w, all, {}, kWhole);
      compare("packed, by segments", w, expected, all, run(w, all, {}, kSplit));
      compare("paged", w, expected, all, run(w, all, {16}, kWhole, 3));
      const auto steps = decode_steps(w, 3, 8);
      compare("decode", w, expected, steps, run(w, steps, {16}, kSplit));
      const std::vector<Chunk> chunk{{0, 1, w.lengths[0]}};
      compare("chunk, by segments", w, expected, chunk, run(w, chunk, {16}, kSplit));
    }
    const World many(8, 8, 64, {1040, 70}, 8);
    const auto all = whole_sequences(many);
    const Result expected = run(many, all, {}, kWhole);
    for (const size_t count : {20, 80}) {
      const auto steps = decode_steps(many, count, 9);
      compare("many decode steps", many, expected, steps, run(many, steps, {128}, kSplit));
    }
  } else if (mode == "small") {
    const World w(4, 2, 128, {130, 1, 1100}, 3), narrow(7, 1, 64, {65, 200}, 4);
    check_values(w, kWhole, {});
    check_values(narrow, kSplit, {16});
    check_bits(w, {16}, 6);
    check_bits(narrow, {32}, 6);
    World fp8(4, 2, 128, {130, 1, 1100}, 5);
    check_bits(fp8.round(Magnitudes::kMixed), {16}, 6);
  } else if (mode == "values") {
    for (int d : {64, 128}) {
      const World w(8, 2, d, {1, 63, 129, 1500, 2300}, 10 + d);
      check_values(w, kWhole, {});
      check_values(w, kSplit, {});
      check_values(w, kWhole, {16});
      check_values(w, kSplit, {128});
    }
  } else if (mode == "fp8") {
    for (int d : {64, 128}) {
      World w(8, 2, d, {1, 63, 129, 1500, 2300}, 40 + d);
      w.round(Magnitudes::kEqual);
      check_values(w, kWhole, {16});
      check_values(w, kSplit, {128});
    }
    const auto check_rounded = [](World&& w, const std::vector<int>& pages, size_t decodes) {
      for (const Magnitudes magnitudes : {Magnitudes::kEqual, Magnitudes::kMixed}) {
        check_bits(w.round(magnitudes), pages, decodes);
      }
    };
    check_rounded(World(8, 2, 128, {1, 64, 127, 128, 129, 1024, 1025, 2500, 3333}, 50),
                  {16, 64, 256}, 64);
    check_rounded(World(7, 1, 128, {2500, 300, 4097}, 51), {32, 128}, 64);
    check_rounded(World(12, 1, 128, {1300, 17, 2049}, 52), {16}, 64);
    check_rounded(World(12, 4, 64, {777, 2049, 15}, 53), {16, 128}, 64);
    check_rounded(World(32, 2, 64, {1300, 90}, 54), {16, 512}, 64);
    check_rounded(World(96, 1, 128, {1300, 90}, 55), {64}, 8);
    World long_one(8, 2, 128, {20000}, 56);
    check_long(long_one.round(Magnitudes::kEqual));
    for (const Values values : kFiniteValues) {
      std::printf("%s:\n", name_values(values));
      check_rounded(World(8, 2, 128, {1300, 129, 2100}, 57, 0, values), {64}, 64);
      check_rounded(World(4, 2, 64, {1100, 70}, 58, 0, values), {16}, 64);
    }
  } else if (mode == "bits") {
    check_bits(World(8, 2, 128, {1, 64, 127, 128, 129, 1024, 1025, 2500, 3333}, 20), {16, 64, 256},
               64);
    check_bits(World(7, 1, 128, {2500, 300, 4097}, 21), {32, 128}, 64);
    check_bits(World(12, 4, 64, {777, 2049, 15}, 22), {16, 128}, 64);
    check_bits(World(8, 2, 128, {1300, 900, 2100}, 23, 37), {64}, 64);
    check_bits(World(96, 1, 128, {1300, 90}, 24), {64}, 8);
    check_long(World(8, 2, 128, {20000}, 25));
    for (const Values values : kFiniteValues) {
      std::printf("%s:\n", name_values(values));
      check_bits(World(8, 2, 128, {1300, 129, 2100}, 26, 0, values), {64}, 64);
      check_bits(World(4, 2, 64, {1100, 70}, 27, 0, values), {16}, 64);
    }
  }
  std::printf("%s: %d failures\n", mode.c_str(), failures);
  return failures != 0;
}

// Tests sampling on the device: the tokens must follow from the documented rules in double, and the
// log-probs must have the documented bits.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "ops/cuda/cuda_testing.h"
#include "ops/sampling_rows.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::ops::testing {
namespace {

class SamplingCuda : public DeviceTest {};

struct Sampled {
  std::vector<int32_t> tokens;
  Array log_probs;
};

// On the device rows of logits must be 16-byte aligned: pads columns to a multiple of 4.
Sampled sample(const Array& raw, const std::vector<SamplingRow>& rows, int64_t allowed = 0) {
  const int64_t r = raw.view().dim(0);
  const OnDevice logits = as_is(raw), log_probs = as_is(Array({r})),
                 tokens = integers_on_device(std::vector<int32_t>(static_cast<size_t>(r), -7)),
                 table = as_is(table_of(rows));
  run_op([&](const Context& s) { sample_tokens(s, tokens, log_probs, logits, table, allowed); });
  const Array ids = tokens.back();
  return {std::vector<int32_t>(ids.view().i32(), ids.view().i32() + r), log_probs.back()};
}

SamplingRow seeded(uint32_t i, const SamplingRow& rule = {}) {
  SamplingRow row = rule;
  row.seed = 99;
  row.counter[0] = i;
  row.counter[2] = 5;
  return row;
}

// Applies the rules of the header in double. Returns -1 if a comparison is so close that f32
// weights may decide otherwise.
int32_t expected_token(const float* raw, int64_t n, const SamplingRow& row) {
  constexpr double kEdge = 1e-6;
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return raw[a] > raw[b]; });
  if (row.greedy != 0) return order[0];
  const double largest = raw[order[0]];
  const auto weight = [&](int32_t id) {
    return std::exp((raw[id] - largest) / double{row.temperature});
  };
  const auto mass_of = [&] {
    double mass = 0.0;
    for (const int32_t id : order) mass += weight(id);
    return mass;
  };
  if (row.top_k > 0 && row.top_k < n) order.resize(static_cast<size_t>(row.top_k));
  if (row.top_p < 1.0f) {
    const double mass = mass_of(), goal = double{row.top_p} * mass;
    double sum = 0.0;
    size_t count = 0;
    do {
      sum += weight(order[count++]);
      if (row.top_p > 0.0f && std::abs(sum - goal) < kEdge * mass) return -1;
    } while (count < order.size() && sum < goal);
    order.resize(count);
  }
  for (const int32_t id : order)
    if (row.min_p > 0.0f && row.min_p < 1.0f && std::abs(weight(id) - double{row.min_p}) < kEdge)
      return -1;
  std::erase_if(order,
                [&](int32_t id) { return weight(id) < double{row.min_p} || !(weight(id) > 0.0); });
  std::sort(order.begin(), order.end());
  const auto words =
      philox4x32({row.counter[0], row.counter[1], row.counter[2], row.counter[3]},
                 {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  const double u =
      (static_cast<double>(words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;
  const double mass = mass_of();
  double sum = 0.0;
  for (const int32_t id : order) {
    sum += weight(id);
    if (std::abs(sum - u * mass) < kEdge * mass && id != order.back()) return -1;
    if (sum > u * mass) return id;
  }
  return order.back();
}

std::vector<SamplingRow> rules() {
  return {{},
          {.top_p = 0.8f},
          {.top_p = 1e-9f},
          {.top_p = 0.0f},
          {.top_k = 5},
          {.top_k = 1},
          {.top_k = 1000},
          {.min_p = 0.1f},
          {.min_p = 1.0f},
          {.top_p = 0.6f, .top_k = 7},
          {.top_p = 0.9f, .top_k = 20, .min_p = 0.2f},
          {.temperature = 0.6f, .top_p = 0.95f},
          {.temperature = 1.7f, .top_p = 0.5f, .top_k = 3000},
          {.greedy = 1}};
}

void expect_stated_tokens(const Array& one, int64_t draws, int64_t allowed,
                          const std::string& what) {
  const int64_t v = one.view().dim(1);
  for (const SamplingRow& rule : rules()) {
    Array logits({draws, v});
    std::vector<SamplingRow> rows;
    for (int64_t i = 0; i < draws; ++i) {
      std::copy_n(one.view().f32(), v, logits.view().f32() + i * v);
      rows.push_back(seeded(static_cast<uint32_t>(i), rule));
    }
    const Sampled got = sample(logits, rows, allowed);
    int64_t checked = 0;
    for (int64_t i = 0; i < draws; ++i) {
      const auto at = static_cast<size_t>(i);
      const int32_t token = expected_token(one.view().f32(), allowed > 0 ? allowed : v, rows[at]);
      if (token < 0) continue;
      ++checked;
      EXPECT_EQ(got.tokens[at], token) << what << ", draw " << i << ", top_p " << rule.top_p
                                       << ", top_k " << rule.top_k << ", min_p " << rule.min_p;
    }
    // With 40000 tokens 2e-6 * 40000 = 8 % of the draws are close to an edge.
    EXPECT_GE(checked, draws * 3 / 4) << what;
  }
}

TEST_F(SamplingCuda, TokensFollowTheStatedRules) {
  expect_stated_tokens(Array::random({1, 40}, 1, 1.5), 500, 0, "40 tokens, seed 1");
  expect_stated_tokens(Array::random({1, 40}, 1, 1.5), 200, 10, "10 of 40 tokens, seed 1");
  expect_stated_tokens(Array::random({1, 5000}, 3), 60, 0, "5000 tokens, seed 3");
  expect_stated_tokens(Array::random({1, 40000}, 4, 2.0), 20, 39001,
                       "39001 of 40000 tokens, seed 4");
}

TEST_F(SamplingCuda, TiesGoToTheLowerId) {
  const Array raw = Array::of({0, 1, 1, 1, 0, 1, 0, 0}, {1, 8});
  SamplingRow greedy;
  greedy.greedy = 1;
  EXPECT_EQ(sample(raw, {greedy}).tokens[0], 1);
  for (uint32_t i = 0; i < 50; ++i) {
    const int32_t of_two = sample(raw, {seeded(i, {.top_k = 2})}).tokens[0];
    EXPECT_TRUE(of_two == 1 || of_two == 2) << of_two;
    const int32_t of_mass = sample(raw, {seeded(i, {.top_p = 0.3f})}).tokens[0];
    // 0.3 of the total 14.9 is 4.46: one tied token has 2.718, two have 5.437.
    EXPECT_TRUE(of_mass == 1 || of_mass == 2) << of_mass;
  }
}

TEST_F(SamplingCuda, MaskedTokensAreNeverDrawn) {
  Array raw = Array::random({1, 3000}, 1);
  for (int64_t i = 0; i < 3000; ++i)
    if (i % 1000 != 999) raw[i] = -std::numeric_limits<float>::infinity();
  expect_stated_tokens(raw, 200, 0, "3 of 3000 tokens");
}

TEST_F(SamplingCuda, RowAloneHasTheBitsOfTheBatch) {
  const Array raw = Array::random({12, 1500}, 1, 2.0);
  std::vector<SamplingRow> rows;
  for (uint32_t i = 0; i < 12; ++i)
    rows.push_back(seeded(i, {.temperature = i % 4 == 1 ? 0.5f : 1.0f,
                              .top_p = i % 2 ? 0.9f : 1.0f,
                              .top_k = i % 3 ? 0 : 50,
                              .greedy = i == 7}));
  const Sampled batch = sample(raw, rows);
  for (int64_t i = 0; i < 12; ++i) {
    Array one({1, 1500});
    std::copy_n(raw.view().f32() + i * 1500, 1500, one.view().f32());
    const Sampled alone = sample(one, {rows[static_cast<size_t>(i)]});
    EXPECT_EQ(alone.tokens[0], batch.tokens[static_cast<size_t>(i)]) << i;
    EXPECT_TRUE(same_bits(alone.log_probs, batch.log_probs.view().rows(i, i + 1))) << i;
  }
}

// N9: sampling reports the same log-prob bits that scoring and training compute, with or without
// logits in memory.
TEST_F(SamplingCuda, LogProbsAreThoseOfScoring) {
  const int64_t rows = 40, v = 5000, size = 128;
  const OnDevice hidden(random_bf16({rows, size}, 1)), w(random_bf16({v, size}, 2, 0.2)),
      logits = as_is(Array({rows, v}));
  run_op([&](const Context& s) { matmul_forward(s, logits, hidden, {w}); });
  const Array raw = logits.back();
  for (const float temperature : {1.0f, 0.7f}) {
    std::vector<SamplingRow> parameters;
    for (uint32_t i = 0; i < rows; ++i)
      parameters.push_back(seeded(i, {.temperature = temperature, .top_p = i % 2 ? 0.9f : 1.0f}));
    const Sampled sampled = sample(raw, parameters);
    const Array blank({rows});
    const OnDevice again = as_is(raw), ids = integers_on_device(sampled.tokens), lse = as_is(blank),
                   scored = as_is(blank), fused = as_is(blank), fused_lse = as_is(blank);
    run_op([&](const Context& s) { normalize_logits(s, again, lse, temperature); });
    run_op([&](const Context& s) { gather_log_probs(s, scored, {}, again, lse, ids); });
    run_op([&](const Context& s) {
      lm_head_forward(s, fused, {}, fused_lse, hidden, w, ids, temperature);
    });
    EXPECT_TRUE(same_bits(sampled.log_probs, scored.back())) << "temperature " << temperature;
    EXPECT_TRUE(same_bits(sampled.log_probs, fused.back())) << "temperature " << temperature;
  }
}

TEST_F(SamplingCuda, BrokenRowsGiveNoTokenAndLeaveTheOthersAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  const Array whole = Array::random({3, 52}, 1);
  for (const float bad : {std::nanf(""), inf})
    for (const int32_t greedy : {0, 1}) {
      std::vector<SamplingRow> rows(3);
      rows[2].greedy = greedy;
      const Sampled good = sample(whole, rows);
      Array logits = whole.clone();
      logits[2 * 52 + 31] = bad;
      const std::vector<int32_t> got = sample(logits, rows).tokens;
      EXPECT_EQ(got[0], good.tokens[0]);
      EXPECT_EQ(got[1], good.tokens[1]);
      EXPECT_EQ(got[2], -1) << bad << " greedy " << greedy;
    }
  Array nothing({1, 8});
  nothing.fill(-inf);
  EXPECT_EQ(sample(nothing, std::vector<SamplingRow>(1)).tokens[0], -1);
}

TEST_F(SamplingCuda, UnknownTokensAreWhatWasSampled) {
  std::vector<int32_t> staged{~2, 7, ~0, 0, ~1}, expected{42, 7, 40, 0, 0};
  for (int32_t i = 0; i < 600; ++i) {
    staged.push_back(i % 3 == 0 ? ~2 : i);
    expected.push_back(i % 3 == 0 ? 42 : i);
  }
  const OnDevice tokens = integers_on_device(staged), sampled = integers_on_device({40, -1, 42});
  run_op([&](const Context& s) { fill_sampled_tokens(s, tokens, sampled); });
  const Array ids = tokens.back();
  EXPECT_EQ(std::vector<int32_t>(ids.view().i32(), ids.view().i32() + expected.size()), expected);
}

// Runs a batch of sequences with up to three drafts each, some of them right, followed by two draft
// passes, on the CPU and on the device.
struct DraftBatch {
  static constexpr int32_t kSequences = 301, kPages = 5, kPageTokens = 16;
  std::vector<int32_t> tokens, sampled, guessed, positions, first, count, held, table;
  std::vector<SamplingRow> rows;

  DraftBatch() {
    auto next = [i = uint32_t{7}](int32_t below) mutable {
      return static_cast<int32_t>(((i = i * 1664525 + 1013904223) >> 8) %
                                  static_cast<uint32_t>(below));
    };
    const auto add_row = [&](int32_t position) {
      tokens.push_back(next(3));
      sampled.push_back(next(3));
      guessed.push_back(next(100) - 1);
      positions.push_back(position);
      rows.push_back(seeded(static_cast<uint32_t>(rows.size())));
    };
    for (int32_t b = 0; b < kSequences; ++b) {
      add_row(next(kPages * kPageTokens - 4));
      first.push_back(0);
      count.push_back(next(4));
      held.push_back(std::min(positions.back() + 1 + next(6), kPages * kPageTokens));
      for (int32_t page = 0; page < kPages; ++page) table.push_back(next(1000));
    }
    for (int32_t b = 0; b < kSequences; ++b) {
      if (count[static_cast<size_t>(b)] > 0)
        first[static_cast<size_t>(b)] = static_cast<int32_t>(tokens.size());
      for (int32_t i = 0; i < count[static_cast<size_t>(b)]; ++i)
        add_row(positions[static_cast<size_t>(b)] + 1 + i);
    }
  }
};

// Returns from, tokens, positions, slots and context lengths of both passes, and the bytes of the
// parameters.
template <class Make, class Run>
std::vector<int32_t> advance_twice(const DraftBatch& batch, const Make& make, const Run& run) {
  const auto zeros = [&] { return make(std::vector<int32_t>(DraftBatch::kSequences, -3)); };
  const auto tokens = make(batch.tokens), sampled = make(batch.sampled),
             guessed = make(batch.guessed), positions = make(batch.positions),
             first = make(batch.first), count = make(batch.count), held = make(batch.held),
             table = make(batch.table), from = zeros(), next_tokens = zeros(),
             next_positions = zeros(), slots = zeros(), context = zeros();
  const auto rows_of = [&](size_t n) {
    std::vector<int32_t> words(n * 12);
    std::memcpy(words.data(), batch.rows.data(), words.size() * 4);
    return make(words);
  };
  const auto parameters = rows_of(batch.rows.size()),
             next_parameters = rows_of(DraftBatch::kSequences);
  const auto as_rows = [](const tensor::Tensor& words) {
    return tensor::Tensor(words.raw(), DType::kU8, words.device(), {words.dim(0) / 12, 48});
  };
  std::vector<int32_t> all;
  for (const bool again : {false, true}) {
    run([&](const Context& s) {
      const DraftPass next{next_tokens, next_positions, as_rows(next_parameters), slots, context};
      const DraftPass last{{}, positions, as_rows(parameters), {}, {}};
      const CheckedDrafts checked{tokens, sampled, first, count};
      const tensor::Tensor flat = table;
      const DraftPages pages{flat.reshaped({DraftBatch::kSequences, DraftBatch::kPages}), held,
                             DraftBatch::kPageTokens};
      advance_drafts(s, next, from, again ? next : last, guessed, again ? nullptr : &checked,
                     pages);
    });
    for (const auto* x :
         {&from, &next_tokens, &next_positions, &slots, &context, &next_parameters}) {
      const Array back = x->back();
      all.insert(all.end(), back.view().i32(), back.view().i32() + back.size());
    }
  }
  return all;
}

struct OnHost : Array {
  using Array::Array;
  explicit OnHost(Array a) : Array(std::move(a)) {}
  Array back() const { return clone(); }
};

TEST_F(SamplingCuda, DraftsAdvanceAsOnTheCpu) {
  const DraftBatch batch;
  tensor::Arena arena({}, 1 << 16, "test");
  const Context cpu = compute_context(arena);
  const auto expected = advance_twice(
      batch, [](const std::vector<int32_t>& v) { return OnHost(Array::integers(v)); },
      [&](const auto& op) { op(cpu); });
  const auto found = advance_twice(
      batch, [](const std::vector<int32_t>& v) { return integers_on_device(v); },
      [](const auto& op) { run_op(op); });
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], expected[i]) << i;
}

TEST_F(SamplingCuda, SamplesAreHandedOut) {
  constexpr int64_t kRows = 300;
  const tensor::StagingBuffer host(test_device(), 2 * (kRows + 1) * 4, "test");
  auto* ids = reinterpret_cast<int32_t*>(host.data());
  auto* values = reinterpret_cast<float*>(host.data()) + kRows + 1;
  const Array log_probs = Array::random({kRows}, 4);
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < kRows; ++i) expected.push_back(i * 7 - 1);
  const OnDevice tokens = integers_on_device(expected), on_device = as_is(log_probs);
  run_op([&](const Context& s) { copy_samples_to_host(s, ids, values, tokens, on_device); });
  EXPECT_EQ(std::vector<int32_t>(ids, ids + kRows), expected);
  for (int64_t i = 0; i < kRows; ++i) EXPECT_EQ(values[i], log_probs[i]) << i;
  EXPECT_EQ(ids[kRows], 0);
  EXPECT_EQ(values[kRows], 0.0f);
}

}  // namespace
}  // namespace slimexx::ops::testing

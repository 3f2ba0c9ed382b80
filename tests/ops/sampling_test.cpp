#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "ops/sampling_rows.h"
#include "ops/testing.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Sampling);

struct Sampled {
  std::vector<int32_t> tokens;
  Array log_probs;
};

Sampled sample(const Context& ctx, const Array& raw, const std::vector<SamplingRow>& rows,
               int64_t allowed = 0) {
  Array logits = raw.clone();
  const int64_t r = raw.view().dim(0);
  Array tokens({r}, DType::kI32), log_probs({r});
  sample_tokens(ctx, tokens, log_probs, logits, table_of(rows), allowed);
  const Array normalized = raw.clone(), lse({r});
  for (int64_t i = 0; i < r; ++i) {
    normalize_logits(ctx, normalized.view().rows(i, i + 1), lse.view().rows(i, i + 1),
                     rows[static_cast<size_t>(i)].temperature);
    const int64_t token = tokens.view().i32()[i];
    EXPECT_EQ(log_probs[i], normalized[i * raw.view().dim(1) + token] - lse[i]) << "row " << i;
  }
  return {std::vector<int32_t>(tokens.view().i32(), tokens.view().i32() + r), log_probs};
}

// Applies the rules of the header by a full sort in double; returns the tokens that may be drawn
// and their weights.
std::map<int32_t, double> reference_kept(const Array& raw, const SamplingRow& row,
                                         int64_t allowed) {
  const int64_t n = allowed > 0 ? allowed : raw.view().dim(1);
  double largest = -INFINITY;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, double{raw[i]});
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return raw[a] > raw[b]; });
  const auto weight = [&](int32_t id) { return std::exp(raw[id] - largest); };
  if (row.top_k > 0 && row.top_k < n) order.resize(static_cast<size_t>(row.top_k));
  if (row.top_p < 1.0f) {
    double mass = 0.0, sum = 0.0;
    for (int32_t id : order) mass += weight(id);
    size_t count = 0;
    do sum += weight(order[count++]);
    while (count < order.size() && sum < double{row.top_p} * mass);
    order.resize(count);
  }
  std::map<int32_t, double> kept;
  for (int32_t id : order)
    if (weight(id) >= double{row.min_p} && weight(id) > 0.0) kept[id] = weight(id);
  return kept;
}

SamplingRow seeded(uint32_t i) {
  SamplingRow row;
  row.seed = 99;
  row.counter[0] = i;
  row.counter[2] = 5;
  return row;
}

// Draws many times from one row and compares the frequencies with the kept weights.
void expect_distribution(const Context& ctx, const Array& raw, SamplingRow rule,
                         int64_t allowed = 0) {
  const auto kept = reference_kept(raw, rule, allowed);
  constexpr int64_t kDraws = 4000;
  const int64_t v = raw.view().dim(1);
  Array logits({kDraws, v});
  std::vector<SamplingRow> rows;
  for (int64_t i = 0; i < kDraws; ++i) {
    std::copy_n(raw.view().f32(), v, logits.view().f32() + i * v);
    SamplingRow row = seeded(static_cast<uint32_t>(i));
    row.top_p = rule.top_p;
    row.top_k = rule.top_k;
    row.min_p = rule.min_p;
    rows.push_back(row);
  }
  std::map<int32_t, int> counts;
  for (int32_t token : sample(ctx, logits, rows, allowed).tokens) ++counts[token];
  double mass = 0.0;
  for (const auto& [id, w] : kept) mass += w;
  for (const auto& [id, count] : counts)
    EXPECT_TRUE(kept.contains(id)) << "token " << id << " was cut off";
  for (const auto& [id, w] : kept) {
    const double p = w / mass, sigma = std::sqrt(p * (1 - p) / kDraws);
    EXPECT_NEAR(counts[id] / double{kDraws}, p, 5.0 * sigma + 1e-9)
        << "token " << id << " of " << kept.size();
  }
}

TEST_P(Sampling, FrequenciesFollowTheRules) {
  const Array raw = Array::random({1, 40}, 1, 1.5);
  expect_distribution(ctx_, raw, {});
  expect_distribution(ctx_, raw, {.top_p = 0.8f});
  expect_distribution(ctx_, raw, {.top_p = 1e-9f});
  expect_distribution(ctx_, raw, {.top_p = 0.0f});
  expect_distribution(ctx_, raw, {.top_k = 5});
  expect_distribution(ctx_, raw, {.top_k = 1});
  expect_distribution(ctx_, raw, {.top_k = 1000});
  expect_distribution(ctx_, raw, {.min_p = 0.1f});
  expect_distribution(ctx_, raw, {.min_p = 1.0f});
  expect_distribution(ctx_, raw, {.top_p = 0.6f, .top_k = 7});
  expect_distribution(ctx_, raw, {.top_p = 0.9f, .top_k = 20, .min_p = 0.2f});
  expect_distribution(ctx_, raw, {}, 10);
  expect_distribution(ctx_, raw, {.top_p = 0.7f}, 10);
}

TEST_P(Sampling, TiesGoToTheLowerId) {
  const Array raw = Array::of({0, 1, 1, 1, 0, 1}, {1, 6});
  expect_distribution(ctx_, raw, {.top_k = 2});
  expect_distribution(ctx_, raw, {.top_p = 0.4f});
  SamplingRow greedy;
  greedy.greedy = true;
  EXPECT_EQ(sample(ctx_, raw, {greedy}).tokens[0], 1);
}

TEST_P(Sampling, WideRowsKeepTheRightTokens) {
  const int64_t v = 5000;
  const Array raw = Array::random({1, v}, 3, 1.0);  // flat: top_p keeps thousands
  for (const SamplingRow& rule :
       {SamplingRow{.top_p = 0.9f}, SamplingRow{.top_p = 0.5f, .top_k = 3000},
        SamplingRow{.min_p = 0.05f}, SamplingRow{}}) {
    const auto kept = reference_kept(raw, rule, 0);
    Array logits({300, v});
    std::vector<SamplingRow> rows;
    for (uint32_t i = 0; i < 300; ++i) {
      std::copy_n(raw.view().f32(), v, logits.view().f32() + i * v);
      SamplingRow row = seeded(i);
      row.top_p = rule.top_p;
      row.top_k = rule.top_k;
      row.min_p = rule.min_p;
      rows.push_back(row);
    }
    // The documented procedure: the uniform number selects from the kept weights' running sum in id
    // order.
    double mass = 0.0;
    for (const auto& [id, w] : kept) mass += w;
    const auto got = sample(ctx_, logits, rows).tokens;
    for (uint32_t i = 0; i < 300; ++i) {
      const auto words = philox4x32({i, 0, 5, 0}, {99, 0});
      const double u =
          (static_cast<double>(words[0] >> 5) * 67108864.0 + (words[1] >> 6)) / 9007199254740992.0;
      double sum = 0.0;
      int32_t expected = -1;
      for (const auto& [id, w] : kept) {
        sum += w;
        expected = id;
        if (sum > u * mass) break;
      }
      const double edge = std::abs(sum - u * mass) / mass;
      if (edge < 1e-6) continue;  // the f32 weights may decide otherwise
      EXPECT_EQ(got[i], expected) << "draw " << i;
    }
  }
}

TEST_P(Sampling, MaskedTokensAreNeverDrawn) {
  Array raw = Array::random({1, 3000}, 1);
  for (int64_t i = 0; i < 3000; ++i)
    if (i % 1000 != 999) raw[i] = -std::numeric_limits<float>::infinity();
  expect_distribution(ctx_, raw, {});
  expect_distribution(ctx_, raw, {.top_p = 0.99f});
  expect_distribution(ctx_, raw, {.top_k = 50});
}

TEST_P(Sampling, BatchAndThreadsChangeNothing) {
  const Array raw = Array::random({12, 1500}, 1, 2.0);
  std::vector<SamplingRow> rows;
  for (uint32_t i = 0; i < 12; ++i) {
    rows.push_back(seeded(i));
    rows.back().top_p = i % 2 ? 0.9f : 1.0f;
    rows.back().top_k = i % 3 ? 0 : 50;
  }
  const Sampled batch = sample(ctx_, raw, rows);
  expect_same_for_any_threads([&] {
    const Sampled again = sample(ctx_, raw, rows);
    EXPECT_EQ(again.tokens, batch.tokens);
    return std::vector<Array>{again.log_probs};
  });
  for (size_t i = 0; i < 12; ++i) {
    Array one({1, 1500});
    std::copy_n(raw.view().f32() + static_cast<int64_t>(i) * 1500, 1500, one.view().f32());
    EXPECT_EQ(sample(ctx_, one, {rows[i]}).tokens[0], batch.tokens[i]) << i;
  }
}

TEST_P(Sampling, BrokenRowsGiveNoTokenAndLeaveTheOthersAlone) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {std::nanf(""), inf})
    for (int32_t greedy : {0, 1}) {
      const Array whole = Array::random({3, 50}, 1);
      std::vector<SamplingRow> rows(3);
      rows[2].greedy = greedy;
      const Sampled good = sample(ctx_, whole, rows);
      Array logits = whole.clone();
      logits[2 * 50 + 31] = bad;
      Array tokens({3}, DType::kI32), log_probs({3});
      sample_tokens(ctx_, tokens, log_probs, logits, table_of(rows), 0);
      EXPECT_EQ(tokens.view().i32()[0], good.tokens[0]);
      EXPECT_EQ(tokens.view().i32()[1], good.tokens[1]);
      EXPECT_EQ(tokens.view().i32()[2], -1) << bad << " greedy " << greedy;
    }
  Array nothing({1, 8}), tokens({1}, DType::kI32), log_probs({1});
  nothing.fill(-inf);
  sample_tokens(ctx_, tokens, log_probs, nothing, table_of(std::vector<SamplingRow>(1)), 0);
  EXPECT_EQ(tokens.view().i32()[0], -1);
  try {
    throw_bad_logits(7);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRun);
    EXPECT_NE(error.message().find("row 7"), std::string::npos) << error.message();
  }
}

TEST_P(Sampling, RowsOfOneBatchHaveTheirOwnTemperatures) {
  const Array raw = Array::random({4, 300}, 3, 2.0);
  std::vector<SamplingRow> rows;
  for (uint32_t i = 0; i < 4; ++i) {
    rows.push_back(seeded(i));
    rows.back().temperature = i % 2 ? 0.5f : 1.0f;
  }
  const Sampled batch = sample(ctx_, raw, rows);
  for (int64_t i = 0; i < 4; ++i) {
    Array one({1, 300}), lse({1}), log_prob({1});
    std::copy_n(raw.view().f32() + i * 300, 300, one.view().f32());
    const Sampled alone = sample(ctx_, one, {rows[static_cast<size_t>(i)]});
    EXPECT_EQ(alone.tokens[0], batch.tokens[static_cast<size_t>(i)]) << i;
    normalize_logits(ctx_, one, lse, rows[static_cast<size_t>(i)].temperature);
    gather_log_probs(ctx_, log_prob, {}, one, lse, Array::integers({alone.tokens[0]}));
    EXPECT_EQ(log_prob[0], batch.log_probs[i]) << i;
  }
}

TEST_P(Sampling, UnknownTokensAreWhatWasSampled) {
  const Array tokens = Array::integers({~2, 7, ~0, 0, ~1, ~2}),
              sampled = Array::integers({40, -1, 42});
  fill_sampled_tokens(ctx_, tokens, sampled);
  const int32_t* ids = tokens.view().i32();
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 6), (std::vector<int32_t>{42, 7, 40, 0, 0, 42}));
}

// Two sequences: the first has three drafts (rows 2 to 4, two of them accepted), the second has
// one, which is rejected. The last row belongs to no sequence. Pages of 4 tokens.
TEST_P(Sampling, DraftsAdvanceBehindTheLastRightOne) {
  const Array tokens = Array::integers({11, 21, 12, 13, 14, 22, 0}),
              sampled = Array::integers({12, 23, 13, 15, 16, 24, 0}),
              guessed = Array::integers({12, 60, 13, 70, 16, 24, 0}),
              positions = Array::integers({5, 9, 6, 7, 8, 10, 0}),
              first = Array::integers({2, 5, 0}), count = Array::integers({3, 1, 0}),
              held = Array::integers({12, 10, 1});
  Array table = Array::integers({8, 3, 5, 7, 2, 6, 0, 0, 0});
  std::vector<SamplingRow> staged(7), next_rows(3);
  for (uint32_t i = 0; i < 7; ++i) staged[i].counter[0] = 100 + i;
  const auto table_of = [](std::vector<SamplingRow>& rows) {
    return Tensor(rows.data(), tensor::DType::kU8, {}, {std::ssize(rows), 48});
  };
  const Array next_tokens = Array::integers({9, 9, 9}), next_positions = Array::integers({9, 9, 9}),
              slots = Array::integers({9, 9, 9}), context = Array::integers({9, 9, 9}),
              from = Array::integers({9, 9, 9});
  const DraftPass next{next_tokens, next_positions, table_of(next_rows), slots, context};
  const DraftPass last{{}, positions, table_of(staged), {}, {}};
  const CheckedDrafts checked{tokens, sampled, first, count};
  const DraftPages pages{table.view().reshaped({3, 3}), held, 4};
  const auto values = [](const Array& x) {
    return std::vector<int32_t>(x.view().i32(), x.view().i32() + 3);
  };
  advance_drafts(ctx_, next, from, last, guessed, &checked, pages);
  EXPECT_EQ(values(from), (std::vector<int32_t>{3, 1, 2}));
  EXPECT_EQ(values(next_tokens), (std::vector<int32_t>{70, 60, 13}));
  // Position 8 is the first of the third page. The second sequence has pages for 10 positions, so
  // it gets no slot.
  EXPECT_EQ(values(next_positions), (std::vector<int32_t>{8, 9, 0}));
  EXPECT_EQ(values(slots), (std::vector<int32_t>{5 * 4, -1, -1}));
  EXPECT_EQ(values(context), (std::vector<int32_t>{8, 0, 0}));
  EXPECT_EQ(next_rows[0].counter[0], 104u);
  EXPECT_EQ(next_rows[1].counter[0], 102u);
  // The next pass, in place. The second sequence still has no slot.
  const Array more = Array::integers({71, -1, 0});
  advance_drafts(ctx_, next, from, next, more, nullptr, pages);
  EXPECT_EQ(values(from), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(values(next_tokens), (std::vector<int32_t>{71, 0, 0}));
  EXPECT_EQ(values(next_positions), (std::vector<int32_t>{9, 9, 0}));
  EXPECT_EQ(values(slots), (std::vector<int32_t>{5 * 4 + 1, -1, -1}));
  EXPECT_EQ(values(context), (std::vector<int32_t>{9, 0, 0}));
  EXPECT_EQ(next_rows[0].counter[0], 105u);
}

TEST_P(Sampling, SamplesAreHandedOut) {
  const Array tokens = Array::integers({5, -1, 7}), log_probs = Array::random({3}, 4);
  std::vector<int32_t> ids(4, -9);
  std::vector<float> values(4, -9);
  copy_samples_to_host(ctx_, ids.data(), values.data(), tokens, log_probs);
  EXPECT_EQ(ids, (std::vector<int32_t>{5, -1, 7, -9}));
  EXPECT_EQ(values, (std::vector<float>{log_probs[0], log_probs[1], log_probs[2], -9}));
}

}  // namespace
}  // namespace slimexx::ops::testing

#include "ops/op_cases.h"

#include <limits>

#include "ops/testing.h"
#include "slimexx/ops/log_prob.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(LogProb);

struct Reference {
  std::vector<double> log_probs, entropies;
};

Reference reference_log_probs(const std::vector<double>& logits,
                              const std::vector<int32_t>& targets, int64_t v, double temperature) {
  Reference r;
  for (size_t row = 0; row < targets.size(); ++row) {
    const double* x = logits.data() + static_cast<int64_t>(row) * v;
    double m = x[0], sum = 0.0, entropy = 0.0;
    for (int64_t i = 0; i < v; ++i) m = std::max(m, x[i]);
    for (int64_t i = 0; i < v; ++i) sum += std::exp((x[i] - m) / temperature);
    for (int64_t i = 0; i < v; ++i) {
      const double log_p = (x[i] - m) / temperature - std::log(sum);
      if (std::isfinite(log_p)) entropy -= std::exp(log_p) * log_p;
    }
    r.log_probs.push_back((x[targets[row]] - m) / temperature - std::log(sum));
    r.entropies.push_back(entropy);
  }
  return r;
}

std::vector<int32_t> some_targets(const cases::RowsCase& c) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < c.rows; ++r)
    targets.push_back(static_cast<int32_t>((r * 7919 + c.columns - 1) % c.columns));
  return targets;
}

struct Result {
  Array logits, lse, log_probs, entropies;
};

Result run_forward(const Context& ctx, const Array& raw, const std::vector<int32_t>& targets,
                   float temperature) {
  const int64_t rows = raw.view().dim(0);
  Result r{raw.clone(), Array({rows}), Array({rows}), Array({rows})};
  normalize_logits(ctx, r.logits, r.lse, temperature);
  gather_log_probs(ctx, r.log_probs, r.entropies, r.logits, r.lse, Array::integers(targets));
  return r;
}

TEST_P(LogProb, AgreesWithDoubles) {
  for (const auto& c : cases::log_prob_values())
    for (float temperature : {1.0f, 0.7f}) {
      const auto targets = some_targets(c);
      const Array raw = Array::random({c.rows, c.columns}, 1, 4.0);
      const Result got = run_forward(ctx_, raw, targets, temperature);
      const Reference expected = reference_log_probs(doubles(raw), targets, c.columns, temperature);
      EXPECT_TRUE(close(got.log_probs, expected.log_probs, 1e-6, 4e-6)) << c.columns;
      EXPECT_TRUE(close(got.entropies, expected.entropies, 1e-5, 2e-6)) << c.columns;
      for (int64_t i = 0; i < raw.size(); ++i) ASSERT_EQ(got.logits[i], raw[i] / temperature) << i;
    }
}

TEST_P(LogProb, MaskedLogitsHaveNoMass) {
  Array raw = Array::random({1, 100}, 1);
  for (int64_t i = 10; i < 100; ++i) raw[i] = -std::numeric_limits<float>::infinity();
  const Result got = run_forward(ctx_, raw, {3}, 1.0f);
  const Reference expected = reference_log_probs(doubles(raw), {3}, 100, 1.0);
  EXPECT_TRUE(close(got.log_probs, expected.log_probs, 1e-6, 1e-6));
  EXPECT_TRUE(close(got.entropies, expected.entropies, 1e-6, 1e-6));
  Array dlogits({1, 100});
  log_probs_backward(ctx_, dlogits, got.logits, got.lse, Array::integers({3}), got.entropies,
                     Array::of({1.0f}, {1}), Array::of({1.0f}, {1}), 1.0f);
  for (int64_t i = 10; i < 100; ++i) EXPECT_EQ(dlogits[i], 0.0f) << i;
}

TEST_P(LogProb, GradientsAgreeWithDifferences) {
  for (const auto& c : cases::log_prob_gradients())
    for (float temperature : {1.0f, 1.6f}) {
      const auto targets = some_targets(c);
      const Array raw = Array::random({c.rows, c.columns}, 1), dlp = Array::random({c.rows}, 2),
                  dh = Array::random({c.rows}, 3);
      const Result got = run_forward(ctx_, raw, targets, temperature);
      std::vector<double> weights = doubles(dlp), entropy_weights = doubles(dh);
      weights.insert(weights.end(), entropy_weights.begin(), entropy_weights.end());
      const auto f = [&](const auto& v) {
        Reference r = reference_log_probs(v, targets, c.columns, temperature);
        r.log_probs.insert(r.log_probs.end(), r.entropies.begin(), r.entropies.end());
        return r.log_probs;
      };
      Array dlogits({c.rows, c.columns}), in_place = got.logits.clone();
      const Array t = Array::integers(targets);
      log_probs_backward(ctx_, dlogits, got.logits, got.lse, t, got.entropies, dlp, dh,
                         temperature);
      EXPECT_TRUE(close(dlogits, numeric_gradient(doubles(raw), weights, f), 1e-4, 1e-5));
      log_probs_backward(ctx_, in_place, in_place, got.lse, t, got.entropies, dlp, dh, temperature);
      EXPECT_TRUE(same_bits(in_place, dlogits)) << "in place";
      std::fill(weights.begin() + c.rows, weights.end(), 0.0);
      log_probs_backward(ctx_, dlogits, got.logits, got.lse, t, {}, dlp, {}, temperature);
      EXPECT_TRUE(close(dlogits, numeric_gradient(doubles(raw), weights, f), 1e-4, 1e-5))
          << "without entropy";
    }
}

// Three leaves of 700 columns, when merged, give the log-probs of whole rows.
TEST_P(LogProb, LeavesMergeToRows) {
  const int64_t rows = 5, width = 700, leaves = 3;
  const std::vector<int32_t> targets{0, 699, 700, 1399, 2099};
  const Array raw = Array::random({rows, leaves * width}, 1, 4.0);
  const Reference expected = reference_log_probs(doubles(raw), targets, leaves * width, 0.7);
  Array logits = raw.clone(), parts({leaves, rows}), lse({rows}), log_probs({rows}),
        entropies({rows});
  const auto leaf = [&](int64_t l) { return logits.view().columns(l * width, (l + 1) * width); };
  for (int64_t l = 0; l < leaves; ++l)
    normalize_logits(ctx_, leaf(l), parts.view().rows(l, l + 1).reshaped({rows}), 0.7f);
  merge_lse(ctx_, lse, parts);
  for (int64_t l = 0; l < leaves; ++l) {
    std::vector<int32_t> own;
    for (const int32_t target : targets)
      own.push_back(target / width == l ? target - static_cast<int32_t>(l * width) : -1);
    Array log_prob({rows}), entropy({rows});
    gather_log_probs(ctx_, log_prob, entropy, leaf(l), lse, Array::integers(own));
    for (int64_t r = 0; r < rows; ++r) {
      EXPECT_TRUE(own[static_cast<size_t>(r)] >= 0 || log_prob[r] == 0) << l << " " << r;
      log_probs[r] += log_prob[r];
      entropies[r] += entropy[r];
    }
  }
  EXPECT_TRUE(close(log_probs, expected.log_probs, 1e-6, 4e-6));
  EXPECT_TRUE(close(entropies, expected.entropies, 1e-5, 2e-6));
}

TEST_P(LogProb, RowAloneStridesAndThreads) {
  const int64_t v = 20001;
  const Array raw = Array::random({5, v}, 1);
  const std::vector<int32_t> targets{1, 2, 3, 20000, 8192};
  const Result batch = run_forward(ctx_, raw, targets, 0.9f);
  for (int64_t r = 0; r < 5; ++r) {
    Array padded({1, v + 77}), alone({1, v});
    std::copy_n(raw.view().f32() + r * v, v, alone.view().f32());
    std::copy_n(raw.view().f32() + r * v, v, padded.view().f32());
    const Result one = run_forward(ctx_, alone, {targets[static_cast<size_t>(r)]}, 0.9f);
    EXPECT_TRUE(same_bits(one.log_probs, batch.log_probs.view().rows(r, r + 1))) << r;
    EXPECT_TRUE(same_bits(one.entropies, batch.entropies.view().rows(r, r + 1))) << r;
    Array lse({1});
    normalize_logits(ctx_, padded.view().columns(0, v), lse, 0.9f);
    EXPECT_TRUE(same_bits(lse, batch.lse.view().rows(r, r + 1))) << "strided, " << r;
  }
  expect_same_for_any_threads([&] {
    const Result r = run_forward(ctx_, raw, targets, 0.9f);
    return std::vector<Array>{r.logits, r.lse, r.log_probs, r.entropies};
  });
}

}  // namespace
}  // namespace slimexx::ops::testing

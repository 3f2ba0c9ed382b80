#include "slimexx/ops/router_balance.h"

#include <numeric>

#include "ops/balance_cases.h"
#include "ops/expert_cases.h"
#include "ops/testing.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(RouterBalance);

using Ints = std::vector<int32_t>;

double in_units(int64_t sum, double units) { return static_cast<double>(sum) / units; }

// Two experts. The two tokens of the first sequence choose different experts; the only token of the
// second chooses the first expert.
TEST_P(RouterBalance, AgreesWithASumByHand) {
  const float ln3 = std::log(3.0f);
  const double ln4 = std::log(4.0);
  const Array logits = Array::of({ln3, 0, 0, ln3, ln3, 0}, {3, 2});
  const Ints ids = {0, 1, 0}, cu_seqlens = {0, 2, 3};
  const RouterRule rule{.num_experts = 2, .top_k = 1};
  const Array ones = Array::of({1, 1, 1, 1, 1, 1}, {3, 2});
  const Balanced aux = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, {1, 0, 2}, ones);
  EXPECT_EQ(aux.sums[0], 2);
  EXPECT_EQ(aux.sums[1], 1);
  EXPECT_NEAR(in_units(aux.sums[2], kernels::kProbabilityUnits), 0.75 + 0.25 + 0.75, 1e-6);
  EXPECT_NEAR(in_units(aux.sums[3], kernels::kProbabilityUnits), 0.25 + 0.75 + 0.25, 1e-6);
  // Load-balancing losses: 1 for the first sequence, which is balanced; 2 * 0.75 for the second,
  // whose frequencies are 2 and 0.
  EXPECT_NEAR(in_units(aux.sums[4], kernels::kAuxLossUnits), (1 + 1.5) / 2, 1e-6);
  EXPECT_NEAR(in_units(aux.sums[5], kernels::kZLossUnits), ln4 * ln4, 1e-6);
  const double slope = 0.5 * 0.75 * (2 - 1.5);
  EXPECT_TRUE(close(aux.dlogits, {1, 1, 1, 1, 1 + slope, 1 - slope}, 0, 1e-6));

  const Balanced z = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, {0, 1, 2}, ones);
  EXPECT_EQ(z.sums, aux.sums);
  // d z-loss / d log-sum-exp for a token of the first and of the second sequence.
  const double half = 2 * ln4 / 4, whole = 2 * ln4 / 2;
  EXPECT_TRUE(close(z.dlogits,
                    {1 + 0.75 * half, 1 + 0.25 * half, 1 + 0.25 * half, 1 + 0.75 * half,
                     1 + 0.75 * whole, 1 + 0.25 * whole},
                    0, 1e-6));
}

// Reference losses in double; the counts are constants.
double losses(const std::vector<double>& logits, const Ints& ids, const Ints& cu_seqlens,
              const RouterRule& rule, const RouterBalanceRule& balance) {
  const auto n = static_cast<size_t>(rule.num_experts), k = static_cast<size_t>(rule.top_k);
  double sum = 0;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s) {
    const auto begin = static_cast<size_t>(cu_seqlens[s]),
               end = static_cast<size_t>(cu_seqlens[s + 1]);
    const auto tokens = static_cast<double>(end - begin);
    std::vector<double> frequency(n);
    for (size_t c = begin * k; c < end * k; ++c)
      frequency[static_cast<size_t>(ids[c])] +=
          static_cast<double>(n) / (static_cast<double>(k) * tokens);
    for (size_t t = begin; t < end; ++t) {
      double exponentials = 0, total = 0, aux = 0;
      std::vector<double> scores;
      for (size_t e = 0; e < n; ++e) {
        const double exponential = std::exp(logits[t * n + e]);
        exponentials += exponential;
        scores.push_back(rule.score == RouterScore::kSigmoid ? exponential / (1 + exponential)
                                                             : exponential);
        total += scores.back();
      }
      for (size_t e = 0; e < n; ++e) aux += frequency[e] * scores[e] / total;
      const double lse = std::log(exponentials);
      sum += (double{balance.aux_loss_coeff} * aux + double{balance.z_loss_coeff} * lse * lse) /
             (tokens * static_cast<double>(balance.sequences));
    }
  }
  return sum;
}

TEST_P(RouterBalance, GradientsAgreeWithDifferences) {
  const Ints cu_seqlens = {0, 4, 4, 5, 7};
  for (const RouterRule& rule : router_rules()) {
    if (rule.num_experts > 20) continue;
    const Array logits = Array::random({7, rule.num_experts}, 8, 1.5);
    const Ints ids = choose(ctx_, logits, rule);
    for (const RouterBalanceRule& balance :
         {RouterBalanceRule{0.5f, 0, 5}, RouterBalanceRule{0, 0.25f, 5},
          RouterBalanceRule{2, 0.5f, 9}}) {
      const Balanced b = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, balance,
                                         Array({7, rule.num_experts}));
      const auto f = [&](const std::vector<double>& values) {
        return std::vector<double>{losses(values, ids, cu_seqlens, rule, balance)};
      };
      EXPECT_TRUE(close(b.dlogits, numeric_gradient(doubles(logits), {1}, f), 1e-3, 1e-6))
          << rule.num_experts;
      EXPECT_NEAR(double{balance.aux_loss_coeff} *
                          in_units(b.sums[b.sums.size() - 2], kernels::kAuxLossUnits) +
                      double{balance.z_loss_coeff} * in_units(b.sums.back(), kernels::kZLossUnits),
                  losses(doubles(logits), ids, cu_seqlens, rule, balance), 1e-5);
      EXPECT_EQ(std::accumulate(b.sums.begin(), b.sums.begin() + rule.num_experts, int64_t{0}),
                7 * rule.top_k);
    }
  }
}

// The bits do not depend on how the sequences are packed, or in which order.
TEST_P(RouterBalance, PackingChangesNoBit) {
  const RouterBalanceRule balance{0.5f, 0.25f, 3};
  for (const RouterRule& rule : router_rules()) {
    const Array logits = Array::random({170, rule.num_experts}, 9, 1.5),
                before = Array::random({170, rule.num_experts}, 10);
    const Ints ids = choose(ctx_, logits, rule), cu_seqlens = {0, 90, 93, 170};
    const Balanced whole = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, balance, before);
    std::vector<int64_t> sums(whole.sums.size());
    for (const size_t s : {2, 0, 1}) {
      const int64_t begin = cu_seqlens[s], end = cu_seqlens[s + 1];
      const Balanced own = balance_on_host(
          ctx_, take_rows(logits, begin, end),
          {ids.begin() + begin * rule.top_k, ids.begin() + end * rule.top_k},
          {0, static_cast<int32_t>(end - begin)}, rule, balance, take_rows(before, begin, end));
      EXPECT_TRUE(same_bits(own.dlogits, whole.dlogits.view().rows(begin, end)));
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += own.sums[i];
    }
    EXPECT_EQ(sums, whole.sums) << rule.num_experts;
    expect_same_for_any_threads([&] {
      const Balanced b = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, balance, before);
      EXPECT_EQ(b.sums, whole.sums);
      return std::vector<Array>{b.dlogits};
    });
  }
}

// Each rank holds a part of every sequence, possibly empty; counts are summed over ranks.
TEST_P(RouterBalance, PartsOfSequencesAreTheWhole) {
  const RouterBalanceRule balance{0.5f, 0.25f, 3};
  for (const RouterRule& rule : router_rules()) {
    const int64_t experts = rule.num_experts, k = rule.top_k;
    const Array logits = Array::random({40, experts}, 9, 1.5),
                before = Array::random({40, experts}, 10);
    Ints ids = choose(ctx_, logits, rule);
    const Ints cu_seqlens = {0, 23, 25, 40}, lengths = lengths_of(cu_seqlens);
    const Balanced whole = balance_on_host(ctx_, logits, ids, cu_seqlens, rule, balance, before);
    const Ints starts = {0, 7, 24, 24, 40};  // first row of each rank
    std::vector<int64_t> sums(whole.sums.size());
    const Tensor all_sums(sums.data(), DType::kI64, {}, {std::ssize(sums)});
    Array counts({3, experts});
    const auto for_ranks = [&](const auto& run) {
      for (size_t r = 0; r + 1 < starts.size(); ++r) {
        Ints own;
        for (const int32_t cu : cu_seqlens)
          own.push_back(std::clamp(cu, starts[r], starts[r + 1]) - starts[r]);
        run(int64_t{starts[r]}, int64_t{starts[r + 1]},
            PackedSequences{.cu_seqlens = own, .lengths = lengths});
      }
    };
    for_ranks([&](int64_t begin, int64_t end, const PackedSequences& sequences) {
      Array part({3, experts});
      part.fill(7);
      count_choices(ctx_, part, all_sums,
                    {ids.data() + begin * k, DType::kI32, {}, {end - begin, k}}, sequences);
      for (int64_t i = 0; i < counts.size(); ++i) counts[i] += part[i];
    });
    for_ranks([&](int64_t begin, int64_t end, const PackedSequences& sequences) {
      const Array dlogits = take_rows(before, begin, end);
      balance_router(ctx_, dlogits, all_sums, counts, take_rows(logits, begin, end), sequences,
                     rule, balance);
      EXPECT_TRUE(same_bits(dlogits, whole.dlogits.view().rows(begin, end)));
    });
    EXPECT_EQ(sums, whole.sums) << experts;
  }
}

TEST_P(RouterBalance, WithoutCoefficientsGradientsKeepTheirBits) {
  const RouterRule rule{.num_experts = 8, .top_k = 2};
  const Array logits = Array::random({5, 8}, 3), before = Array::random({5, 8}, 4);
  const Balanced b =
      balance_on_host(ctx_, logits, choose(ctx_, logits, rule), {0, 5}, rule, {0, 0, 1}, before);
  EXPECT_TRUE(same_bits(b.dlogits, before));
}

// A step that diverged is skipped; its metrics must still not overflow.
TEST_P(RouterBalance, WildLogitsDoNotOverflow) {
  for (const float value : {std::nanf(""), 1e30f, -1e30f, INFINITY}) {
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
      const RouterRule rule{.num_experts = 4, .top_k = 2, .score = score};
      Array logits({64, 4});
      logits.fill(value);
      Ints ids;
      for (int t = 0; t < 64; ++t) ids.insert(ids.end(), {0, 1});
      const Balanced b =
          balance_on_host(ctx_, logits, ids, {0, 64}, rule, {0, 0, 1}, Array({64, 4}));
      EXPECT_EQ(b.sums[0], 64);
      for (const int64_t sum : b.sums) EXPECT_GE(sum, 0) << value;
      EXPECT_LE(in_units(b.sums.back(), kernels::kZLossUnits), kernels::kMostZLoss);
    }
  }
}

TEST_P(RouterBalance, NoTokensAddNothing) {
  const RouterRule rule{.num_experts = 4, .top_k = 2};
  Balanced b = balance_on_host(ctx_, Array({0, 4}), {}, {0}, rule, {1, 1, 1}, Array({0, 4}));
  EXPECT_EQ(b.sums, std::vector<int64_t>(10));
}

TEST_P(RouterBalance, BiasesMoveTowardsEvenLoads) {
  std::vector<int64_t> sums = {4, 3, 2, 3, 9, 9, 9, 9, 9, 9};  // mean 3; probabilities do not count
  const Array bias = Array::of({0.5f, 0.5f, 0.5f, -0.25f}, {4});
  move_router_bias(ctx_, bias, {sums.data(), DType::kI64, {}, {10}}, 0.125f);
  EXPECT_EQ(doubles(bias), (std::vector<double>{0.375, 0.5, 0.625, -0.25}));
  sums[0] = 5;  // mean 3.25: all four loads differ from it
  move_router_bias(ctx_, bias, {sums.data(), DType::kI64, {}, {10}}, 0.125f);
  EXPECT_EQ(doubles(bias), (std::vector<double>{0.25, 0.625, 0.75, -0.125}));
}

}  // namespace
}  // namespace slimexx::ops::testing

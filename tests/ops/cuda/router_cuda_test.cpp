// Compares the router on the device with the CPU's, from the same logits.
#include "slimexx/ops/router.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cpu_context.h"
#include "ops/balance_cases.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/cuda/experts_cuda_problem.h"

namespace slimexx::ops::testing {
namespace {

class RouterCuda : public DeviceTest {};

// Apart from ties, scores differ from the CPU's by rounding, and no choice among these logits is so
// close that this matters.
TEST_F(RouterCuda, AgreesWithTheCpu) {
  constexpr int64_t kTokens = 150;
  for (const RouterRule& rule : router_rules()) {
    const Array logits = Array::random({kTokens, rule.num_experts}, 3, 1.5);
    for (const Array& bias : {Array(), Array::random({rule.num_experts}, 4, 0.1)}) {
      const Routed got = route(logits, bias, rule);
      std::vector<int32_t> ids(got.ids.size());
      const Array weights({kTokens, rule.top_k});
      const Tensor id_rows(ids.data(), DType::kI32, {}, {kTokens, rule.top_k});
      route_forward(cpu_context(), id_rows, weights, logits, bias, rule);
      EXPECT_EQ(got.ids, ids) << rule.num_experts << " experts, seed 3";
      EXPECT_TRUE(close(got.weights, doubles(weights), 1e-5, 1e-7)) << rule.num_experts;

      const Array dweights = Array::random({kTokens, rule.top_k}, 5),
                  dlogits({kTokens, rule.num_experts});
      route_backward(cpu_context(), dlogits, dweights, id_rows, logits, rule);
      const OnDevice own = as_is(dlogits), dw = as_is(dweights), l = as_is(logits),
                     device_ids = as_is(integers(ids));
      run_op([&](const Context& s) {
        route_backward(s, own, dw, rows_of(device_ids, kTokens), l, rule);
      });
      EXPECT_TRUE(close(own.back(), doubles(dlogits), 1e-4, 1e-6)) << rule.num_experts;
    }
  }
}

TEST_F(RouterCuda, EqualScoresGoToTheLowerExpertAndGroup) {
  const Array logits = Array::of({1, 2, 2, 2, 0, 0, 0, 0, 5, 5, 5, 5, -0.0f, 0, 0, -0.0f}, {4, 4});
  EXPECT_EQ(route(logits, {}, {.num_experts = 4, .top_k = 2}).ids,
            (std::vector<int32_t>{1, 2, 0, 1, 0, 1, 0, 1}));
  const RouterRule groups{.num_experts = 4, .top_k = 1, .num_groups = 2, .kept_groups = 1};
  EXPECT_EQ(route(logits, {}, groups).ids, (std::vector<int32_t>{2, 0, 0, 0}));
}

TEST_F(RouterCuda, TheBiasChoosesAndDoesNotWeigh) {
  const RouterRule rule{
      .num_experts = 3, .top_k = 1, .score = RouterScore::kSigmoid, .normalized = false};
  const Routed routed = route(Array::of({0, 1, 2}, {1, 3}), Array::of({10, 0, 0}, {3}), rule);
  EXPECT_EQ(routed.ids, std::vector<int32_t>{0});
  EXPECT_EQ(routed.weights[0], 0.5f);
}

TEST_F(RouterCuda, ATokenAloneHasTheBitsOfTheBatch) {
  for (const RouterRule& rule : router_rules()) {
    const Array logits = Array::random({37, rule.num_experts}, 6, 1.5);
    const Routed all = route(logits, {}, rule);
    for (int64_t t = 0; t < 37; t += 9) {
      Array own({1, rule.num_experts});
      for (int64_t e = 0; e < rule.num_experts; ++e) own[e] = logits[t * rule.num_experts + e];
      EXPECT_TRUE(same_bits(route(own, {}, rule).weights, all.weights.view().rows(t, t + 1)));
    }
  }
}

// NaN logits still give distinct experts that exist.
TEST_F(RouterCuda, ChoicesOfNanAreExperts) {
  Array logits({2, 8});
  logits.fill(std::nanf(""));
  for (const bool limited : {false, true}) {
    const Routed routed =
        route(logits, {},
              {.num_experts = 8, .top_k = 3, .num_groups = limited ? 2 : 1, .kept_groups = 1});
    for (int64_t t = 0; t < 2; ++t)
      for (int64_t j = 0; j < 3; ++j) {
        const int32_t id = routed.ids[static_cast<size_t>(3 * t + j)];
        EXPECT_TRUE(id >= 0 && id < 8);
        if (j == 0) continue;
        EXPECT_LT(routed.ids[static_cast<size_t>(3 * t + j - 1)], id);
      }
  }
}

// Counts must equal the CPU's exactly; probabilities and losses up to rounding.
Balanced balance_on_device(const Array& logits, const std::vector<int32_t>& ids,
                           const std::vector<int32_t>& cu_seqlens, const RouterRule& rule,
                           const RouterBalanceRule& balance, const Array& dlogits) {
  const int64_t tokens = logits.view().dim(0), num_sums = count_router_sums(rule.num_experts);
  const OnDevice own = as_is(dlogits), l = as_is(logits), device_ids = as_is(integers(ids)),
                 cu = as_is(integers(cu_seqlens)), sums = as_is(Array({num_sums}, DType::kI64)),
                 counts = as_is(Array({std::ssize(cu_seqlens) - 1, rule.num_experts}));
  const std::vector<int32_t> lengths = lengths_of(cu_seqlens);
  const OnDevice device_lengths = as_is(integers(lengths));
  const PackedSequences sequences{cu_seqlens, lengths, cu, device_lengths};
  run_op([&](const Context& s) {
    count_choices(s, counts, sums, rows_of(device_ids, tokens), sequences);
    balance_router(s, own, sums, counts, l, sequences, rule, balance);
  });
  const Array back = sums.back();
  const auto* first = back.view().data<int64_t>();
  return {{first, first + num_sums}, own.back()};
}

TEST_F(RouterCuda, BalanceAgreesWithTheCpuAndWithAnyPacking) {
  const RouterBalanceRule balance{0.5f, 0.25f, 3};
  const std::vector<int32_t> cu_seqlens = {0, 2090, 2093, 3170};
  for (const RouterRule& rule : router_rules()) {
    SCOPED_TRACE(std::to_string(rule.num_experts) + " experts");
    const int64_t experts = rule.num_experts;
    const Array logits = Array::random({3170, experts}, 9, 1.5),
                before = Array::random({3170, experts}, 10, 1e-3);
    const std::vector<int32_t> ids = choose(cpu_context(), logits, rule);
    const Balanced expected =
        balance_on_host(cpu_context(), logits, ids, cu_seqlens, rule, balance, before);
    const Balanced got = balance_on_device(logits, ids, cu_seqlens, rule, balance, before);
    EXPECT_TRUE(close(got.dlogits, doubles(expected.dlogits), 1e-4, 1e-8));
    for (int64_t i = 0; i < count_router_sums(experts); ++i) {
      const auto e = static_cast<size_t>(i);
      const auto sum = static_cast<double>(expected.sums[e]);
      EXPECT_NEAR(static_cast<double>(got.sums[e]), sum, i < experts ? 0 : 1e-4 * sum) << i;
    }
    EXPECT_EQ(balance_on_device(logits, ids, cu_seqlens, rule, balance, before).sums, got.sums);
    std::vector<int64_t> sums(got.sums.size());
    for (const size_t s : {2, 0, 1}) {
      const int64_t begin = cu_seqlens[s], end = cu_seqlens[s + 1];
      const Balanced own = balance_on_device(
          take_rows(logits, begin, end),
          {ids.begin() + begin * rule.top_k, ids.begin() + end * rule.top_k},
          {0, static_cast<int32_t>(end - begin)}, rule, balance, take_rows(before, begin, end));
      EXPECT_TRUE(same_bits(own.dlogits, got.dlogits.view().rows(begin, end)));
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += own.sums[i];
    }
    EXPECT_EQ(sums, got.sums);
    const Balanced still = balance_on_device(logits, ids, cu_seqlens, rule, {0, 0, 3}, before);
    EXPECT_TRUE(same_bits(still.dlogits, before));
  }
}

TEST_F(RouterCuda, BiasesMoveTowardsEvenLoads) {
  const Array loads({10}, DType::kI64);
  const int64_t values[] = {4, 3, 2, 3, 9, 9, 9, 9, 9, 9};
  std::copy_n(values, 10, loads.view().data<int64_t>());
  const OnDevice bias = as_is(Array::of({0.5f, 0.5f, 0.5f, -0.25f}, {4})), sums = as_is(loads);
  run_op([&](const Context& s) { move_router_bias(s, bias, sums, 0.125f); });
  EXPECT_EQ(doubles(bias.back()), (std::vector<double>{0.375, 0.5, 0.625, -0.25}));
}

}  // namespace
}  // namespace slimexx::ops::testing

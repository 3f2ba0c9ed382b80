// The mixture of experts on the device: the router against the CPU's from the same logits, and
// products, sums and orders of routed rows; each expert's rows have the bits of a plain product.
#include "slimexx/ops/experts.h"

#include "cpu_context.h"
#include "ops/balance_cases.h"
#include "ops/cuda_testing.h"
#include "ops/expert_cases.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops::testing {
namespace {

class RouterCuda : public DeviceTest {};
class ExpertsCuda : public DeviceTest {};

Array integers(const std::vector<int32_t>& values) { return Array::integers(values); }

struct Routed {
  std::vector<int32_t> ids;
  Array weights;
};
Tensor rows_of(const OnDevice& list, int64_t rows) {
  const Tensor flat = list.view();
  return rows == 0 ? flat.reshaped({0, 1}) : flat.reshaped({rows, flat.dim(0) / rows});
}
std::vector<int32_t> values_of(const OnDevice& list) {
  const Array back = list.back();
  const auto* first = back.view().i32();
  return {first, first + back.size()};
}

Routed route(const Array& logits, const Array& bias, const RouterRule& rule) {
  const int64_t tokens = logits.view().dim(0);
  const OnDevice ids =
      as_is(integers(std::vector<int32_t>(static_cast<size_t>(tokens * rule.top_k), -1)));
  const OnDevice weights = as_is(Array({tokens, rule.top_k})), own = as_is(logits),
                 own_bias = as_is(bias);
  run_op([&](const Context& s) {
    route_forward(s, rows_of(ids, tokens), weights, own, own_bias, rule);
  });
  return {values_of(ids), weights.back()};
}

// More choices than a thread block has, and as many experts as are served.
TEST_F(ExpertsCuda, CopiesAreThoseOfATable) {
  std::vector<int32_t> table, ids, expected;
  for (int32_t e = 0; e < kMostExperts; ++e) table.push_back(e * 7919 % 65536);
  for (int32_t choice = 0; choice < 3000; ++choice) {
    ids.push_back(choice * 31 % static_cast<int32_t>(kMostExperts));
    expected.push_back(table[static_cast<size_t>(ids.back())]);
  }
  const OnDevice own = as_is(integers(ids));
  const OnDevice copies = as_is(integers(std::vector<int32_t>(ids.size(), -1)));
  run_op([&](const Context& s) {
    choose_copies(s, rows_of(copies, 1000), rows_of(own, 1000), table);
  });
  EXPECT_EQ(values_of(copies), expected);
}

// Equal exponentials aside, scores differ by rounding alone: no choice of these logits is that
// near.
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

// NaN logits are chosen like others: distinct experts that exist.
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

// What is counted is the CPU's to the last one, probabilities and losses but for rounding.
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

// The routed rows of Choices on the device, sorted there.
struct DeviceRows {
  Choices host;
  OnDevice ids, offsets, choices, tokens, rows;
  DeviceRows(int64_t num_tokens, int64_t experts, int64_t k)
      : host(num_tokens, experts, k),
        ids(as_is(integers(host.ids))),
        offsets(as_is(integers(host.offsets))),
        choices(as_is(integers(host.choices))),
        tokens(as_is(integers(host.of_token))),
        rows(as_is(integers(host.rows))) {
    host.sort(cpu_context());
    run_op([&](const Context& s) { sort_by_expert(s, routed(), rows_of(ids, num_tokens)); });
  }
  RoutedRows routed() const { return {offsets, choices, tokens, rows_of(rows, host.tokens)}; }
};

// One run, many, and runs that end within a round.
TEST_F(ExpertsCuda, OrderIsThatOfTheCpu) {
  const std::vector<std::array<int64_t, 3>> sizes = {{1, 8, 2},      {57, 9, 3},    {256, 128, 8},
                                                     {2000, 160, 8}, {8192, 64, 4}, {1500, 384, 6}};
  for (const auto& [tokens, experts, k] : sizes) {
    const DeviceRows own(tokens, experts, k);
    EXPECT_EQ(values_of(own.offsets), own.host.offsets) << tokens;
    EXPECT_EQ(values_of(own.choices), own.host.choices) << tokens;
    EXPECT_EQ(values_of(own.tokens), own.host.of_token) << tokens;
    EXPECT_EQ(values_of(own.rows), own.host.rows) << tokens;
  }
}

// One kernel for a few tokens, two for more: the same choices, weights and orders, to the bit.
TEST_F(ExpertsCuda, ChoosingAndSortingTogetherHaveTheBitsOfBoth) {
  for (const RouterRule& rule : router_rules())
    for (const int64_t tokens : {1, 2, 5, 16, 17, 40}) {
      const int64_t experts = rule.num_experts, k = rule.top_k, count = tokens * k;
      const std::string name =
          std::to_string(tokens) + " tokens, " + std::to_string(experts) + " experts, seed 7";
      const OnDevice logits = as_is(Array::random({tokens, experts}, 7, 1.5)),
                     bias = as_is(Array::random({experts}, 8, 0.1));
      const auto list = [](int64_t size) {
        return as_is(integers(std::vector<int32_t>(static_cast<size_t>(size), -1)));
      };
      struct Results {
        OnDevice ids, weights, offsets, choices, tokens, rows;
      };
      const auto results = [&] {
        return Results{list(count),       as_is(Array({tokens, k})),
                       list(experts + 1), list(count),
                       list(count),       list(count)};
      };
      const auto routed = [&](const Results& r) {
        return RoutedRows{r.offsets, r.choices, r.tokens, rows_of(r.rows, tokens)};
      };
      const Results one = results(), two = results();
      run_op([&](const Context& s) {
        route_and_sort(s, routed(one), rows_of(one.ids, tokens), one.weights, logits, bias, rule);
      });
      run_op([&](const Context& s) {
        route_forward(s, rows_of(two.ids, tokens), two.weights, logits, bias, rule);
      });
      run_op([&](const Context& s) { sort_by_expert(s, routed(two), rows_of(two.ids, tokens)); });
      EXPECT_TRUE(same_bits(one.weights.back(), two.weights.back())) << name;
      for (const auto& part :
           {&Results::ids, &Results::offsets, &Results::choices, &Results::tokens, &Results::rows})
        EXPECT_EQ(values_of(one.*part), values_of(two.*part)) << name;
    }
}

struct Shape {
  int64_t tokens, experts, k, n, inputs;
};
// Swapped tiles of 32 and of 64 rows and plain ones; experts without rows, with one, with several
// tiles; sizes that are no multiple of a tile.
std::vector<Shape> shapes() {
  return {{5, 8, 2, 64, 64},       {40, 16, 4, 72, 136},  {200, 128, 8, 128, 256},
          {200, 16, 3, 96, 64},    {700, 9, 3, 264, 200}, {900, 6, 2, 1536, 512},
          {1000, 4, 2, 384, 1032}, {64, 5, 1, 1040, 64}};
}
std::string name_of(const Shape& s) {
  return std::to_string(s.tokens) + " tokens, " + std::to_string(s.k) + " of " +
         std::to_string(s.experts) + " experts, " + std::to_string(s.n) + "x" +
         std::to_string(s.inputs) + ", seed 1";
}

TEST_F(ExpertsCuda, ProductsHaveTheBitsOfEachExpertAlone) {
  for (const Shape& shape : shapes()) {
    const DeviceRows own(shape.tokens, shape.experts, shape.k);
    const int64_t num_rows = shape.tokens * shape.k, n = shape.n, k = shape.inputs;
    Array blank({num_rows, n});
    blank.fill(std::nanf(""));
    const OnDevice x(random_bf16({num_rows, k}, 1)),
        w(random_bf16({shape.experts, n, k}, 2, 1 / std::sqrt(double(k)))), y(blank);
    run_op([&](const Context& s) { expert_matmul_forward(s, y, x, w, own.routed()); });
    const Array got = y.back();
    for (int64_t e = 0; e < shape.experts; ++e) {
      const int64_t begin = own.host.offsets[static_cast<size_t>(e)],
                    end = own.host.offsets[static_cast<size_t>(e + 1)];
      if (begin == end) continue;
      const OnDevice alone(Array({end - begin, n}));
      run_op([&](const Context& s) {
        matmul_forward(s, alone, x.view().rows(begin, end),
                       w.view().rows(e, e + 1).reshaped({n, k}), {});
      });
      ASSERT_TRUE(same_bits(alone.back(), got.view().rows(begin, end)))
          << name_of(shape) << ", expert " << e;
    }
  }
}

TEST_F(ExpertsCuda, SwigluHasTheBitsOfBothOps) {
  for (const Shape& shape : shapes()) {
    const DeviceRows own(shape.tokens, shape.experts, shape.k);
    const int64_t num_rows = shape.tokens * shape.k, f = shape.n / 2 / 8 * 8, k = shape.inputs;
    Array blank({num_rows, f});
    blank.fill(std::nanf(""));
    const OnDevice x(random_bf16({num_rows, k}, 1)),
        w(random_bf16({shape.experts, 2 * f, k}, 2, 2 / std::sqrt(double(k)))),
        gate_up(Array({num_rows, 2 * f})), expected(blank), h(blank);
    run_op([&](const Context& s) { expert_matmul_forward(s, gate_up, x, w, own.routed()); });
    run_op([&](const Context& s) { swiglu_forward(s, expected, gate_up); });
    run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, h, x, w, own.routed()); });
    EXPECT_TRUE(same_bits(h.back(), expected.back())) << name_of(shape);
  }
}

// A token alone: its row serves all experts, and the results are those of the same row in a batch.
TEST_F(ExpertsCuda, OneTokenHasTheBitsOfTheBatch) {
  const std::vector<Shape> ones = {
      {3, 8, 2, 64, 64}, {70, 16, 4, 72, 136}, {200, 128, 8, 1536, 2048}, {700, 9, 3, 264, 200}};
  for (const Shape& shape : ones) {
    const DeviceRows all(shape.tokens, shape.experts, shape.k);
    const int64_t num_rows = shape.tokens * shape.k, f = shape.n / 2 / 8 * 8, k = shape.inputs;
    const Array x = random_bf16({shape.tokens, k}, 1);
    const OnDevice own_x(x), rows(Array({num_rows, k})), h(Array({num_rows, f})),
        y(Array({num_rows, 2 * f})),
        w(random_bf16({shape.experts, 2 * f, k}, 2, 2 / std::sqrt(double(k)))),
        shared_w(random_bf16({2 * f, k}, 3, 2 / std::sqrt(double(k)))), shared_h(Array({1, f})),
        shared_y(Array({1, 2 * f})), w_down(random_bf16({shape.experts, k, f}, 4)),
        shared_w_down(random_bf16({k, f}, 5));
    run_op([&](const Context& s) {
      gather_rows(s, rows, own_x, all.routed().tokens);
      expert_matmul_forward(s, y, rows, w, all.routed());
    });
    run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, h, rows, w, all.routed()); });
    const Array whole_y = y.back(), whole_h = h.back();
    for (const int64_t t : {int64_t{0}, shape.tokens / 2, shape.tokens - 1}) {
      const auto first = all.host.ids.begin() + t * shape.k;
      const auto list = [](int64_t size) {
        return as_is(integers(std::vector<int32_t>(static_cast<size_t>(size))));
      };
      const OnDevice ids = as_is(integers({first, first + shape.k})),
                     offsets = list(shape.experts + 1), choices = list(shape.k),
                     tokens = list(shape.k), places = list(shape.k), one_h(Array({shape.k, f})),
                     one_y(Array({shape.k, 2 * f})), joined_h(Array({shape.k + 1, f})),
                     joined_y(Array({shape.k + 1, 2 * f})), down(Array({shape.k + 1, k})),
                     own_down(Array({shape.k, k})), shared_down(Array({1, k}));
      const RoutedRows one{offsets, choices, tokens, rows_of(places, 1)};
      run_op([&](const Context& s) { sort_by_expert(s, one, rows_of(ids, 1)); });
      const Tensor row = own_x.view().rows(t, t + 1);
      run_op([&](const Context& s) { expert_matmul_forward(s, one_y, row, w, one); });
      run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, one_h, row, w, one); });
      const Array got_y = one_y.back(), got_h = one_h.back();
      // With a shared expert behind them nothing else changes, and its row is that of a product.
      run_op([&](const Context& s) { matmul_forward(s, shared_y, row, shared_w, {}); });
      run_op([&](const Context& s) { matmul_swiglu_forward(s, shared_h, row, shared_w, {}); });
      run_op([&](const Context& s) { expert_matmul_forward(s, joined_y, row, w, one, shared_w); });
      run_op([&](const Context& s) {
        expert_matmul_swiglu_forward(s, joined_h, row, w, one, shared_w);
      });
      const auto expect_joined = [&](const OnDevice& joined, const Array& routed,
                                     const OnDevice& shared) {
        const Array back = joined.back();
        EXPECT_TRUE(same_bits(back.view().rows(0, shape.k), routed)) << name_of(shape) << t;
        EXPECT_TRUE(same_bits(back.view().rows(shape.k, shape.k + 1), shared.back()))
            << name_of(shape) << t;
      };
      expect_joined(joined_y, got_y, shared_y);
      expect_joined(joined_h, got_h, shared_h);
      const Tensor to_k = w_down.view(), shared_to_k = shared_w_down.view();
      run_op([&](const Context& s) {
        expert_matmul_forward(s, down, joined_h, to_k, one, shared_to_k);
        expert_matmul_forward(s, own_down, one_h, to_k, one);
        matmul_forward(s, shared_down, shared_h, shared_to_k, {});
      });
      expect_joined(down, own_down.back(), shared_down);
      for (int64_t j = 0; j < shape.k; ++j) {  // ascending experts: row j is choice j
        const int64_t at = all.host.rows[static_cast<size_t>(t * shape.k + j)];
        EXPECT_TRUE(same_bits(got_y.view().rows(j, j + 1), whole_y.view().rows(at, at + 1)))
            << name_of(shape) << ", token " << t << ", choice " << j;
        EXPECT_TRUE(same_bits(got_h.view().rows(j, j + 1), whole_h.view().rows(at, at + 1)))
            << name_of(shape) << ", token " << t << ", choice " << j;
      }
    }
  }
}

// The sum of the routed rows, the residual stream and the norm in one kernel.
TEST_F(ExpertsCuda, SumsAddedAndNormedHaveTheBitsOfBothOps) {
  for (const Shape& shape : {Shape{1, 8, 2, 64, 8}, Shape{37, 16, 4, 2048, 8},
                             Shape{5, 9, 3, 5120, 8}, Shape{130, 6, 5, 264, 8}}) {
    const DeviceRows own(shape.tokens, shape.experts, shape.k);
    const int64_t tokens = shape.tokens, width = shape.n;
    const Array blank({tokens, width});
    const OnDevice rows(random_bf16({tokens * shape.k, width}, 1)),
        weights = as_is(Array::random({tokens, shape.k}, 2)),
        shared(random_bf16({tokens, width}, 3)), x(random_bf16({tokens, width}, 4)),
        w(random_bf16({width}, 5, 0.1, 1.0)), sum(blank), expected_x(blank), expected_y(blank);
    for (const bool has_shared : {false, true})
      for (const bool has_norm : {false, true}) {
        const Tensor added = has_shared ? shared.view() : Tensor{};
        const OnDevice got_x(blank), got_y(blank);
        const auto norm = [&](const OnDevice& t) { return has_norm ? t.view() : Tensor{}; };
        run_op([&](const Context& s) {
          combine_rows(s, sum, rows, weights, added, own.routed());
          add_rms_norm_forward(s, norm(expected_y), expected_x, x, sum, {}, norm(w), 1e-6f);
        });
        run_op([&](const Context& s) {
          combine_add_rms_norm(s, {norm(got_y), got_x, x, norm(w), 1e-6f}, rows, weights, added,
                               own.routed());
        });
        EXPECT_TRUE(same_bits(got_x.back(), expected_x.back())) << name_of(shape) << has_shared;
        if (has_norm) {
          EXPECT_TRUE(same_bits(got_y.back(), expected_y.back())) << name_of(shape) << has_shared;
        }
      }
  }
}

TEST_F(ExpertsCuda, GradientsAgreeWithTheCpu) {
  constexpr double kRounding = 1.0 / 256 + 2e-5;
  for (const Shape& shape : shapes()) {
    DeviceRows own(shape.tokens, shape.experts, shape.k);
    const int64_t num_rows = shape.tokens * shape.k, n = shape.n, k = shape.inputs;
    const Array x = random_bf16({num_rows, k}, 1),
                w = random_bf16({shape.experts, n, k}, 2, 1 / std::sqrt(double(n))),
                dy = random_bf16({num_rows, n}, 3);
    const Array dx({num_rows, k}), before = Array::random({shape.experts, n, k}, 4);
    expert_matmul_backward_input(cpu_context(), dx, dy, w, own.host.routed());
    const OnDevice ex(x), ew(w), edy(dy), gx(dx);
    run_op([&](const Context& s) { expert_matmul_backward_input(s, gx, edy, ew, own.routed()); });
    EXPECT_TRUE(close_by_norm(gx.back(), dx, kRounding, 1e-6)) << name_of(shape);
    for (const bool accumulate : {false, true}) {
      const Array dw = before.clone();
      expert_matmul_backward_weight(cpu_context(), dw, dy, x, own.host.routed(), accumulate);
      const OnDevice gw = as_is(before), again = as_is(before);
      for (const OnDevice& out : {gw, again})
        run_op([&](const Context& s) {
          expert_matmul_backward_weight(s, out, edy, ex, own.routed(), accumulate);
        });
      EXPECT_TRUE(close_by_norm(gw.back(), dw, 2e-5, 1e-6)) << name_of(shape) << accumulate;
      EXPECT_TRUE(same_bits(gw.back(), again.back())) << name_of(shape);
    }
  }
}

TEST_F(ExpertsCuda, SumsAndWeightsAgreeWithTheCpu) {
  for (const Shape& shape : shapes()) {
    DeviceRows own(shape.tokens, shape.experts, shape.k);
    const int64_t num_rows = shape.tokens * shape.k, width = shape.n;
    const Array rows = random_bf16({num_rows, width}, 1),
                weights = Array::random({shape.tokens, shape.k}, 2),
                shared = random_bf16({shape.tokens, width}, 3), y({shape.tokens, width});
    const OnDevice in(rows), w = as_is(weights), own_shared(shared), out(y);
    for (const bool weighted : {true, false}) {
      combine_rows(cpu_context(), y, rows, weighted ? weights.view() : Tensor{},
                   weighted ? shared.view() : Tensor{}, own.host.routed());
      run_op([&](const Context& s) {
        combine_rows(s, out, in, weighted ? w.view() : Tensor{},
                     weighted ? own_shared.view() : Tensor{}, own.routed());
      });
      EXPECT_TRUE(within_ulp(out.back(), y, 1e-5)) << name_of(shape);
    }
    const Array dh = random_bf16({num_rows, width}, 4), h = random_bf16({num_rows, width}, 5),
                dweights({shape.tokens, shape.k});
    const OnDevice device_dh(dh), device_h(h), device_dw = as_is(dweights);
    run_op([&](const Context& s) {  // the first call only plans
      weigh_rows_backward(s, device_dw, device_dh, device_h, w, own.routed());
    });
    weigh_rows_backward(cpu_context(), dweights, dh, h, weights, own.host.routed());
    EXPECT_TRUE(close_by_norm(device_dw.back(), dweights, 1e-5, 1e-5)) << name_of(shape);
    EXPECT_TRUE(within_ulp(device_dh.back(), dh)) << name_of(shape);
    EXPECT_TRUE(within_ulp(device_h.back(), h)) << name_of(shape);
  }
}

TEST_F(ExpertsCuda, NoTokens) {
  const DeviceRows own(0, 4, 2);
  EXPECT_EQ(values_of(own.offsets), std::vector<int32_t>(5, 0));
  const OnDevice dw = as_is(Array::random({4, 8, 16}, 1)), dy(Array({0, 8})), x(Array({0, 16}));
  run_op(
      [&](const Context& s) { expert_matmul_backward_weight(s, dw, dy, x, own.routed(), false); });
  EXPECT_TRUE(same_bits(dw.back(), Array({4, 8, 16})));
}

}  // namespace
}  // namespace slimexx::ops::testing

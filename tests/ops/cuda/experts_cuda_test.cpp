// Tests the mixture of experts on the device: products, sums and the order of routed rows. Each
// expert's rows have the bits of a plain product.
#include "slimexx/ops/experts.h"

#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/cuda/experts_cuda_problem.h"
#include "ops/expert_cases.h"
#include "slimexx/kernels/limits.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops::testing {
namespace {

class ExpertsCuda : public DeviceTest {};

// More choices than a thread block has threads, and the largest supported number of experts.
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

// Choices for one thread block of the sorting kernel, and for several; the last block may be partly
// filled.
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

// One kernel for few tokens, two for more: the same choices, weights and order, to the bit.
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
// The cases have swapped tiles of 32 and 64 rows, and plain tiles; experts with no rows, one row
// and several tiles; sizes that are not multiples of a tile. The last case has many tiles per
// thread block.
std::vector<Shape> shapes() {
  return {{5, 8, 2, 64, 64},       {40, 16, 4, 72, 136},  {200, 128, 8, 128, 256},
          {200, 16, 3, 96, 64},    {700, 9, 3, 264, 200}, {900, 6, 2, 1536, 512},
          {1000, 4, 2, 384, 1032}, {64, 5, 1, 1040, 64},  {3000, 64, 4, 520, 776}};
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
    run_op([&](const Context& s) { expert_matmul_forward(s, y, x, {w}, own.routed()); });
    const Array got = y.back();
    for (int64_t e = 0; e < shape.experts; ++e) {
      const int64_t begin = own.host.offsets[static_cast<size_t>(e)],
                    end = own.host.offsets[static_cast<size_t>(e + 1)];
      if (begin == end) continue;
      const OnDevice alone(Array({end - begin, n}));
      run_op([&](const Context& s) {
        matmul_forward(s, alone, x.view().rows(begin, end),
                       {w.view().rows(e, e + 1).reshaped({n, k})});
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
    run_op([&](const Context& s) { expert_matmul_forward(s, gate_up, x, {w}, own.routed()); });
    run_op([&](const Context& s) { swiglu_forward(s, expected, gate_up); });
    run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, h, x, {w}, own.routed()); });
    EXPECT_TRUE(same_bits(h.back(), expected.back())) << name_of(shape);
  }
}

// A single token: all experts read its row, and the results have the bits of the same row in a
// batch.
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
      expert_matmul_forward(s, y, rows, {w}, all.routed());
    });
    run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, h, rows, {w}, all.routed()); });
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
      run_op([&](const Context& s) { expert_matmul_forward(s, one_y, row, {w}, one); });
      run_op([&](const Context& s) { expert_matmul_swiglu_forward(s, one_h, row, {w}, one); });
      const Array got_y = one_y.back(), got_h = one_h.back();
      // A shared expert changes no other row, and its row has the bits of a plain product.
      run_op([&](const Context& s) { matmul_forward(s, shared_y, row, {shared_w}); });
      run_op([&](const Context& s) { matmul_swiglu_forward(s, shared_h, row, {shared_w}); });
      run_op(
          [&](const Context& s) { expert_matmul_forward(s, joined_y, row, {w}, one, {shared_w}); });
      run_op([&](const Context& s) {
        expert_matmul_swiglu_forward(s, joined_h, row, {w}, one, {shared_w});
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
        expert_matmul_forward(s, down, joined_h, {to_k}, one, {shared_to_k});
        expert_matmul_forward(s, own_down, one_h, {to_k}, one);
        matmul_forward(s, shared_down, shared_h, {shared_to_k});
      });
      expect_joined(down, own_down.back(), shared_down);
      for (int64_t j = 0; j < shape.k; ++j) {  // experts are ascending, so row j is choice j
        const int64_t at = all.host.rows[static_cast<size_t>(t * shape.k + j)];
        EXPECT_TRUE(same_bits(got_y.view().rows(j, j + 1), whole_y.view().rows(at, at + 1)))
            << name_of(shape) << ", token " << t << ", choice " << j;
        EXPECT_TRUE(same_bits(got_h.view().rows(j, j + 1), whole_h.view().rows(at, at + 1)))
            << name_of(shape) << ", token " << t << ", choice " << j;
      }
    }
  }
}

// One kernel for the sum of routed rows, the residual and the norm has the bits of separate ops.
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
    Array sums({shape.experts, n, k});
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
      // With accumulation the result is the earlier gradient plus the sum stored without it,
      // rounded once.
      if (accumulate) {
        EXPECT_TRUE(same_bits(gw.back(), sums)) << name_of(shape);
      }
      const Array stored = gw.back();
      for (int64_t i = 0; i < sums.size(); ++i) sums[i] = before[i] + stored[i];
    }
  }
}

// Expects the bits of the separate ops that this op fuses; other tests compare the separate ops
// with the CPU. The sum is compared with the CPU here.
void expect_swiglu_backward(DeviceRows& own, const Shape& shape, const Array& weights) {
  const int64_t num_rows = shape.tokens * shape.k, width = shape.n;
  const Array dh = random_bf16({num_rows, width}, 4),
              gate_up = random_bf16({num_rows, 2 * width}, 5), dweights({shape.tokens, shape.k}),
              h({num_rows, width});
  OnDevice device_dh(dh), device_gate_up(gate_up);
  const OnDevice plain_h(h);
  run_op([&](const Context& s) { swiglu_forward(s, plain_h, device_gate_up); });
  const Array plain = plain_h.back();
  Array weighed = plain.clone(), scaled = dh.clone(), expected_dw({shape.tokens, shape.k}),
        by_row({num_rows});
  for (int64_t row = 0; row < num_rows; ++row) {
    const int64_t choice = own.host.choices[static_cast<size_t>(row)];
    double sum = 0;
    by_row[row] = weights[choice];
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      sum += double{dh[i]} * plain[i];
      weighed[i] *= weights[choice];
      scaled[i] *= weights[choice];
    }
    expected_dw[choice] = static_cast<float>(sum);
  }
  const OnDevice device_scaled(rounded(scaled)), expected_dgate_up(gate_up);
  run_op([&](const Context& s) {
    swiglu_backward(s, expected_dgate_up, {}, device_scaled, device_gate_up);
  });
  const Array dgate_up = expected_dgate_up.back();
  for (const bool in_order : {false, true}) {
    const OnDevice device_dw = as_is(in_order ? Array({num_rows}) : dweights);
    const OnDevice device_w = as_is(in_order ? by_row : weights);
    device_dh.write(dh);
    device_gate_up.write(gate_up);
    run_op([&](const Context& s) {
      expert_swiglu_backward(s, device_dw, device_dh, device_gate_up, device_dh, device_w,
                             own.routed());
    });
    const Array dw = device_dw.back();
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t choice = own.host.choices[static_cast<size_t>(row)];
      const float got = dw[in_order ? row : choice], want = expected_dw[choice];
      EXPECT_NEAR(got, want, 1e-4 + 1e-5 * std::abs(want)) << name_of(shape) << " row " << row;
    }
    EXPECT_TRUE(same_bits(device_dh.back(), rounded(weighed))) << name_of(shape) << in_order;
    EXPECT_TRUE(same_bits(device_gate_up.back(), dgate_up)) << name_of(shape) << in_order;
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
  }
}

TEST_F(ExpertsCuda, SwigluBackwardIsThatOfItsParts) {
  for (const Shape& shape : shapes()) {
    DeviceRows own(shape.tokens, shape.experts, shape.k);
    expect_swiglu_backward(own, shape, Array::random({shape.tokens, shape.k}, 2));
  }
}

// Rows without an expert come last. Weight gradients read some of these rows, which must become
// zero; all other rows stay unchanged.
TEST_F(ExpertsCuda, SwigluBackwardLeavesZerosBehindTheLastRow) {
  const int64_t width = 40;
  const float unset = 7;
  for (const auto& [rows, used] :
       std::vector<std::array<int64_t, 2>>{{300, 131}, {300, 0}, {140, 131}, {131, 131}}) {
    const std::vector<int32_t> any(static_cast<size_t>(rows), 0);
    const OnDevice offsets = as_is(integers({0, static_cast<int32_t>(used)})),
                   choices = as_is(integers(any)), tokens = as_is(integers(any)),
                   of_choice = as_is(integers(any)), weights = as_is(Array::random({rows}, 2));
    Array before({rows, width});
    for (int64_t i = 0; i < rows * width; ++i) before[i] = unset;
    const Array gates = random_bf16({rows, 2 * width}, 5);
    const OnDevice h(before), gate_up(gates), dh(random_bf16({rows, width}, 4)),
        dweights = as_is(Array({rows}));
    run_op([&](const Context& s) {
      expert_swiglu_backward(s, dweights, h, gate_up, dh, weights,
                             {offsets, choices, tokens, rows_of(of_choice, rows)});
    });
    const Array after = h.back(), dgates = gate_up.back();
    for (int64_t i = used * width; i < rows * width; ++i) {
      const float expected = i < (used + kernels::kReadBehindExperts) * width ? 0 : unset;
      ASSERT_EQ(after[i], expected) << "row " << i / width << " of " << used << ", " << rows;
    }
    for (int64_t i = used * 2 * width; i < rows * 2 * width; ++i)
      ASSERT_EQ(dgates[i], gates[i]) << "row " << i / (2 * width) << " of " << used;
    for (int64_t i = 0; i < used * width; i += width)
      ASSERT_NE(after[i], unset) << "row " << i / width << " of " << used;
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

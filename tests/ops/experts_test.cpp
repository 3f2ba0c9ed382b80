#include "slimexx/ops/experts.h"

#include "ops/expert_cases.h"
#include "ops/testing.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

namespace slimexx::ops::testing {
namespace {

SLX_OPS_SUITE(Experts);

TEST_P(Experts, RowsStandByExpertAndThenByToken) {
  Choices c(57, 9, 3);
  c.sort(ctx_);
  EXPECT_EQ(c.offsets.front(), 0);
  EXPECT_EQ(c.offsets.back(), 57 * 3);
  for (int64_t row = 0; row < 57 * 3; ++row) {
    const auto e = static_cast<size_t>(c.expert_of(row));
    EXPECT_GE(row, c.offsets[e]);
    EXPECT_LT(row, c.offsets[e + 1]);
    EXPECT_EQ(c.rows[static_cast<size_t>(c.choices[static_cast<size_t>(row)])], row);
    EXPECT_EQ(c.of_token[static_cast<size_t>(row)], c.choices[static_cast<size_t>(row)] / 3);
    if (row == c.offsets[e]) continue;
    EXPECT_LT(c.choices[static_cast<size_t>(row - 1)], c.choices[static_cast<size_t>(row)]);
  }
}

TEST_P(Experts, CopiesAreThoseOfATable) {
  std::vector<int32_t> ids{2, 0, 1, 1, 0, 2}, copies(6, -1);
  const std::vector<int32_t> table{7, 0, 300};
  choose_copies(ctx_, Choices::view(copies, {3, 2}), Choices::view(ids, {3, 2}), table);
  EXPECT_EQ(copies, (std::vector<int32_t>{300, 7, 0, 0, 7, 300}));
  choose_copies(ctx_, Choices::view(ids, {3, 2}).rows(0, 0), Choices::view(ids, {3, 2}).rows(0, 0),
                table);
}

// Each row has the bits of matmul with its expert's weights, whatever other rows there are.
TEST_P(Experts, ProductsHaveTheBitsOfEachExpertAlone) {
  Choices c(41, 9, 3);
  c.sort(ctx_);
  const int64_t n = 33, k = 70, num_rows = 41 * 3;
  const Array x = Array::random({num_rows, k}, 1), w = Array::random({9, n, k}, 2),
              dy = Array::random({num_rows, n}, 3);
  Array y({num_rows, n}), dx({num_rows, k}), dw = Array::random({9, n, k}, 4), sum = dw.clone();
  expert_matmul_forward(ctx_, y, x, {w}, c.routed());
  expert_matmul_backward_input(ctx_, dx, dy, w, c.routed());
  expert_matmul_backward_weight(ctx_, dw, dy, x, c.routed(), false);
  expert_matmul_backward_weight(ctx_, sum, dy, x, c.routed(), true);
  const Array before = Array::random({9, n, k}, 4);
  for (int64_t e = 0; e < 9; ++e) {
    const int64_t begin = c.offsets[static_cast<size_t>(e)],
                  end = c.offsets[static_cast<size_t>(e + 1)];
    const auto weights = [&](const Array& all) {
      return all.view().rows(e, e + 1).reshaped({n, k});
    };
    Array own_y({end - begin, n}), own_dx({end - begin, k}), own_dw({n, k});
    const Tensor own_x = x.view().rows(begin, end), own_dy = dy.view().rows(begin, end);
    matmul_forward(ctx_, own_y, own_x, {weights(w)});
    matmul_backward_input(ctx_, own_dx, own_dy, weights(w), false);
    matmul_backward_weight(ctx_, own_dw, {}, own_dy, own_x, false);
    EXPECT_TRUE(same_bits(own_y, y.view().rows(begin, end))) << e;
    EXPECT_TRUE(same_bits(own_dx, dx.view().rows(begin, end))) << e;
    EXPECT_TRUE(same_bits(own_dw, weights(dw))) << "expert " << e << ", " << end - begin << " rows";
    std::vector<double> expected = doubles(own_dw);
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] += before[e * n * k + static_cast<int64_t>(i)];
    EXPECT_TRUE(close(weights(sum), expected, 1e-5, 1e-5)) << e;
  }
}

TEST_P(Experts, CombineSumsAscendingExpertsAndThenTheSharedOne) {
  Choices c(23, 6, 2);
  c.sort(ctx_);
  const int64_t width = 37;
  const Array rows = Array::random({46, width}, 1), weights = Array::random({23, 2}, 2),
              shared = Array::random({23, width}, 3);
  Array y({23, width}), plain({23, width});
  combine_rows(ctx_, y, rows, weights, shared, c.routed());
  combine_rows(ctx_, plain, rows, {}, {}, c.routed());
  for (int64_t t = 0; t < 23; ++t)
    for (int64_t i = 0; i < width; ++i) {
      const auto row = [&](int64_t j) {
        return rows[c.rows[static_cast<size_t>(t * 2 + j)] * width + i];
      };
      float expected = weights[t * 2] * row(0);
      expected += weights[t * 2 + 1] * row(1);
      expected += shared[t * width + i];
      EXPECT_EQ(y[t * width + i], expected) << t << ", " << i;
      EXPECT_EQ(plain[t * width + i], row(0) + row(1)) << t << ", " << i;
    }
}

TEST_P(Experts, CombinedRowsJoinTheResidualStream) {
  Choices c(23, 6, 2);
  c.sort(ctx_);
  const int64_t width = 37;
  const Array rows = Array::random({46, width}, 1), weights = Array::random({23, 2}, 2),
              shared = Array::random({23, width}, 3), x = Array::random({23, width}, 4),
              w = Array::random({width}, 5);
  Array sum({23, width}), x_sum({23, width}), y({23, width}), got_x = x.clone(), got_y({23, width});
  combine_rows(ctx_, sum, rows, weights, shared, c.routed());
  add_rms_norm_forward(ctx_, y, x_sum, x, sum, {}, w, 1e-5f);
  tensor::Arena arena({}, 1 << 16, "test");
  const Context ctx = compute_context(arena);
  combine_add_rms_norm(ctx, {got_y, got_x, got_x, w, 1e-5f}, rows, weights, shared, c.routed());
  EXPECT_TRUE(same_bits(got_x, x_sum));
  EXPECT_TRUE(same_bits(got_y, y));
}

// With a single token one row of x serves all experts, and a shared expert may be added.
TEST_P(Experts, ATokenAloneHasTheBitsOfTheBatch) {
  Choices all(29, 7, 3);
  all.sort(ctx_);
  const int64_t n = 18, k = 41;
  const Array x = Array::random({29, k}, 1), w = Array::random({7, 2 * n, k}, 2),
              shared_w = Array::random({2 * n, k}, 3);
  Array rows({29 * 3, k}), h({29 * 3, n});
  tensor::Arena arena({}, 1 << 20, "test");
  const Context ctx = compute_context(arena);
  gather_rows(ctx_, rows, x, all.routed().tokens);
  expert_matmul_swiglu_forward(ctx, h, rows, {w}, all.routed());
  for (int64_t t = 0; t < 29; t += 7) {
    Choices one(1, 7, 3);
    std::copy_n(all.ids.begin() + t * 3, 3, one.ids.begin());
    one.sort(ctx_);
    Array own({3, n}), joined({4, n}), shared({1, n});
    expert_matmul_swiglu_forward(ctx, joined, x.view().rows(t, t + 1), {w}, one.routed(),
                                 {shared_w});
    matmul_swiglu_forward(ctx, shared, x.view().rows(t, t + 1), {shared_w});
    EXPECT_TRUE(same_bits(joined.view().rows(3, 4), shared)) << "token " << t;
    expert_matmul_swiglu_forward(ctx, own, x.view().rows(t, t + 1), {w}, one.routed());
    for (int64_t j = 0; j < 3; ++j) {
      const int64_t at = all.rows[static_cast<size_t>(t * 3 + j)];
      EXPECT_TRUE(same_bits(own.view().rows(j, j + 1), h.view().rows(at, at + 1)))
          << "token " << t << ", choice " << j;
      EXPECT_TRUE(same_bits(joined.view().rows(j, j + 1), own.view().rows(j, j + 1))) << t;
    }
  }
}

TEST_P(Experts, SwigluBackwardIsWeighed) {
  Choices c(3, 4, 2);
  c.sort(ctx_);
  const Array weights = Array::of({1, 2, 3, 4, 5, 6}, {3, 2});
  const Array dh = Array::random({6, 19}, 1), gate_up = Array::random({6, 38}, 2);
  Array h({6, 19}), dgate_up = gate_up.clone(), dweights({3, 2});
  expert_swiglu_backward(ctx_, dweights, h, dgate_up, dh, weights, c.routed());
  Array plain({6, 19}), scaled = dh.clone(), expected({6, 38});
  swiglu_forward(ctx_, plain, gate_up);
  for (int64_t row = 0; row < 6; ++row) {
    const int64_t choice = c.choices[static_cast<size_t>(row)];
    double sum = 0;
    for (int64_t i = row * 19; i < (row + 1) * 19; ++i) {
      EXPECT_EQ(h[i], plain[i] * weights[choice]);
      sum += double{dh[i]} * plain[i];
      scaled[i] *= weights[choice];
    }
    EXPECT_NEAR(dweights[choice], sum, 1e-5);
  }
  swiglu_backward(ctx_, expected, {}, scaled, gate_up);
  EXPECT_TRUE(same_bits(dgate_up, expected));

  // Weights by routed row, with h in the memory of dh; rows after the last expert's stay unchanged.
  Choices fewer = c;
  fewer.offsets.back() = 4;
  Array by_row({6}), dby_row({6}), in_place = dh.clone(), again = gate_up.clone();
  for (int64_t row = 0; row < 6; ++row) by_row[row] = weights[c.choices[static_cast<size_t>(row)]];
  expert_swiglu_backward(ctx_, dby_row, in_place, again, in_place, by_row, fewer.routed());
  for (int64_t row = 0; row < 6; ++row) {
    const bool is_left = row >= 4;
    EXPECT_EQ(dby_row[row], is_left ? 0 : dweights[c.choices[static_cast<size_t>(row)]]) << row;
    EXPECT_TRUE(same_bits(in_place.view().rows(row, row + 1),
                          (is_left ? dh : h).view().rows(row, row + 1)));
    EXPECT_TRUE(same_bits(again.view().rows(row, row + 1),
                          (is_left ? gate_up : dgate_up).view().rows(row, row + 1)));
  }
}

TEST_P(Experts, NoTokens) {
  Choices c(0, 4, 2);
  c.sort(ctx_);
  EXPECT_EQ(c.offsets, std::vector<int32_t>(5, 0));
  Array dw = Array::random({4, 3, 5}, 1);
  expert_matmul_backward_weight(ctx_, dw, Array({0, 3}), Array({0, 5}), c.routed(), false);
  EXPECT_TRUE(same_bits(dw, Array({4, 3, 5})));
}

}  // namespace
}  // namespace slimexx::ops::testing

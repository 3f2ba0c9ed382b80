// Checks of the router and the sort of routed rows: choices, weights, gradients, orders and copies.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/kernels/experts.h"
#include "tests/kernels/experts/router_case.h"

namespace slimexx::kernels::testing {

inline constexpr double kRouterSlack = 0x1p-17;
using IntArray = Array<int32_t>;

struct RouterResult {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
inline RouterResult route(const RouterCase& c, int64_t first, int64_t tokens) {
  const FloatArray logits(take_rows(c.logits, first, tokens, c.shape.experts)), bias(c.bias),
      weights(tokens * c.shape.top_k);
  const IntArray ids(tokens * c.shape.top_k);
  expect_no_fault(route_forward(ids.data(), weights.data(), logits.data(),
                                c.has_bias ? bias.data() : nullptr, c.shape, tokens, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  return {ids.get(), weights.get()};
}

inline std::vector<float> route_back(const RouterCase& c, const std::vector<int32_t>& ids) {
  const FloatArray logits(c.logits), dweights(c.dweights), dlogits(c.tokens * c.shape.experts);
  const IntArray chosen(ids);
  expect_no_fault(route_backward(dlogits.data(), dweights.data(), chosen.data(), logits.data(),
                                 c.shape, c.tokens, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  return dlogits.get();
}

inline void check_router(const RouterCase& c) {
  current_case = "router " + c.name();
  const int64_t k = c.shape.top_k;
  const RouterResult got = route(c, 0, c.tokens), again = route(c, 0, c.tokens);
  expect_bits("choices again", again.ids, got.ids, k);
  expect_bits("weights again", again.weights, got.weights, k);
  std::vector<int32_t> expected = got.ids;
  std::vector<Exact> weights, dlogits;
  for (int64_t t = 0; t < c.tokens; ++t) {
    const RouterRow row(c, t);
    if (row.margin > 1e-6) std::copy(row.ids.begin(), row.ids.end(), expected.begin() + t * k);
    // The expected gradient, for the choice that the device made.
    const RouterGradient own(c, t, row.scores, got.ids.data() + t * k);
    weights.insert(weights.end(), own.weights.begin(), own.weights.end());
    dlogits.insert(dlogits.end(), own.dlogits.begin(), own.dlogits.end());
  }
  expect_bits("choices", got.ids, expected, k);
  expect_close("weights", got.weights, weights, k, kRouterSlack);
  const std::vector<float> gradient = route_back(c, got.ids);
  expect_close("dlogits", gradient, dlogits, c.shape.experts, kRouterSlack);
  expect_bits("dlogits again", route_back(c, got.ids), gradient, c.shape.experts);
  for (int64_t t = 0; t < c.tokens; t += 1 + c.tokens / 3) {
    const RouterResult alone = route(c, t, 1);
    expect_bits("choices alone", alone.ids, take_rows(got.ids, t, 1, k), k);
    expect_bits("weights alone", alone.weights, take_rows(got.weights, t, 1, k), k);
  }
}

// If scores take few values, many are equal: the lower expert and the lower group win. The logits
// have one sign: sums of two sigmoids are then equal only if both sigmoids are.
inline void check_ties(RouterShape shape, int64_t tokens) {
  RouterCase c(shape, tokens, false);
  for (float& logit : c.logits) logit = std::abs(std::round(logit));
  current_case = "ties " + c.name();
  const RouterResult got = route(c, 0, tokens);
  std::vector<int32_t> expected;
  for (int64_t t = 0; t < tokens; ++t) {
    const RouterRow row(c, t);
    expected.insert(expected.end(), row.ids.begin(), row.ids.end());
  }
  expect_bits("choices", got.ids, expected, shape.top_k);
}

struct DeviceOrder {
  IntArray offsets, choices, tokens, rows;
  DeviceOrder(int64_t experts, int64_t count)
      : offsets(experts + 1), choices(count), tokens(count), rows(count) {}
  void expect(const char* what, const HostOrder& expected) const {
    const std::string name = what;
    expect_bits((name + ": offsets").c_str(), offsets.get(), expected.offsets, 1);
    expect_bits((name + ": choices").c_str(), choices.get(), expected.choices, 1);
    expect_bits((name + ": tokens").c_str(), tokens.get(), expected.tokens, 1);
    expect_bits((name + ": rows").c_str(), rows.get(), expected.rows, 1);
  }
};

// Random choices among `experts` experts, of which every third is never chosen.
inline std::vector<int32_t> random_ids(int64_t count, int64_t experts) {
  std::mt19937_64 engine(++current_seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(engine() % static_cast<uint64_t>(experts));
    if (id % 3 == 1 && experts > 2) id -= 1;
  }
  return ids;
}

inline void check_order(int64_t tokens, int64_t experts, int64_t top_k) {
  const int64_t count = tokens * top_k;
  current_case = "order of " + std::to_string(count) + " choices, " + std::to_string(experts) +
                 " experts, " + std::to_string(top_k) + " a token";
  const std::vector<int32_t> host = random_ids(count, experts);
  const IntArray ids(host), copies(count);
  const DeviceOrder order(experts, count);
  const auto bytes = static_cast<int64_t>(sort_by_expert_workspace(count, experts));
  const Array<uint8_t> workspace(bytes);
  expect_no_fault(sort_by_expert(order.offsets.data(), order.choices.data(), order.tokens.data(),
                                 order.rows.data(), ids.data(), count, top_k, experts,
                                 workspace.data(), nullptr));
  std::vector<int32_t> table, chosen;
  for (int32_t e = 0; e < experts; ++e) table.push_back(e * 7919 % 65536);
  for (const int32_t id : host) chosen.push_back(table[id]);
  expect_no_fault(choose_copies(copies.data(), ids.data(), count, table.data(), experts, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  order.expect("order", HostOrder(host, experts, top_k));
  expect_bits("copies", copies.get(), chosen, top_k);
  workspace.get();  // its guards
}

// The kernel that routes and sorts gives the same results as the two separate kernels.
inline void check_route_and_sort(const RouterCase& c) {
  if (!fuses_route_and_sort(c.shape, c.tokens)) return;
  current_case = "route and sort " + c.name();
  const int64_t k = c.shape.top_k;
  const RouterResult expected = route(c, 0, c.tokens);
  const FloatArray logits(c.logits), bias(c.bias), weights(c.count());
  const IntArray ids(c.count());
  const DeviceOrder order(c.shape.experts, c.count());
  expect_no_fault(route_and_sort(
      ids.data(), weights.data(),
      {order.offsets.data(), order.choices.data(), order.tokens.data(), order.rows.data()},
      logits.data(), c.has_bias ? bias.data() : nullptr, c.shape, c.tokens, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("choices", ids.get(), expected.ids, k);
  expect_bits("weights", weights.get(), expected.weights, k);
  order.expect("order", HostOrder(expected.ids, c.shape.experts, k));
}

inline std::vector<RouterShape> router_shapes() {
  const RouterShape sigmoid{.sigmoid = true, .epsilon = 1e-20f, .scaling_factor = 2.5f};
  RouterShape wide = sigmoid, grouped = sigmoid, few = sigmoid, most = sigmoid;
  wide.experts = 160, wide.top_k = 8;
  grouped.experts = 256, grouped.top_k = 8, grouped.groups = 8, grouped.kept_groups = 4;
  few.experts = 8, few.top_k = 2, few.groups = 4, few.kept_groups = 1, few.normalized = false;
  most.experts = 384, most.top_k = 32;
  return {{.experts = 8, .top_k = 2},
          {.experts = 128, .top_k = 8},
          {.experts = 16, .top_k = 16, .normalized = false, .scaling_factor = 1.5f},
          {.experts = 7, .top_k = 3, .normalized = false},
          {.experts = 1, .top_k = 1},
          wide,
          grouped,
          few,
          most};
}

}  // namespace slimexx::kernels::testing

// Helpers for device tests of the router and of experts.
#pragma once
#include <cstdint>
#include <vector>

#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/expert_cases.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops::testing {

inline Array integers(const std::vector<int32_t>& values) { return Array::integers(values); }

struct Routed {
  std::vector<int32_t> ids;
  Array weights;
};
inline Tensor rows_of(const OnDevice& list, int64_t rows) {
  const Tensor flat = list.view();
  return rows == 0 ? flat.reshaped({0, 1}) : flat.reshaped({rows, flat.dim(0) / rows});
}
inline std::vector<int32_t> values_of(const OnDevice& list) {
  const Array back = list.back();
  const auto* first = back.view().i32();
  return {first, first + back.size()};
}

inline Routed route(const Array& logits, const Array& bias, const RouterRule& rule) {
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

// The routed rows of Choices, sorted on the device.
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

}  // namespace slimexx::ops::testing

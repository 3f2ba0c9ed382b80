// Router cases and choices of experts, for the tests of both backends.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/router.h"

namespace slimexx::ops::testing {

inline std::vector<RouterRule> router_rules() {
  return {{.num_experts = 8, .top_k = 2},
          {.num_experts = 128, .top_k = 8},
          {.num_experts = 16, .top_k = 16, .normalized = false, .scaling_factor = 1.5f},
          {.num_experts = 7, .top_k = 3, .normalized = false},
          {.num_experts = 160,
           .top_k = 8,
           .score = RouterScore::kSigmoid,
           .epsilon = 1e-20f,
           .scaling_factor = 2.5f},
          {.num_experts = 256,
           .top_k = 8,
           .score = RouterScore::kSigmoid,
           .num_groups = 8,
           .kept_groups = 4,
           .epsilon = 1e-20f,
           .scaling_factor = 2.5f},
          {.num_experts = 8,
           .top_k = 2,
           .score = RouterScore::kSigmoid,
           .num_groups = 4,
           .kept_groups = 1,
           .normalized = false}};
}

// k distinct experts per token, ascending; some experts get no rows.
struct Choices {
  int64_t tokens, experts, k;
  std::vector<int32_t> ids, offsets, choices, of_token, rows;
  Choices(int64_t tokens_in, int64_t experts_in, int64_t k_in)
      : tokens(tokens_in), experts(experts_in), k(k_in) {
    PhiloxStream random(11, 3);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<std::pair<double, int32_t>> keys;
      for (int64_t e = 0; e < experts; ++e)
        keys.emplace_back((e % 3 == 1 ? 100 : 0) + random.next_normal(), static_cast<int32_t>(e));
      std::ranges::sort(keys);
      for (int64_t j = 0; j < k; ++j) ids.push_back(keys[static_cast<size_t>(j)].second);
      std::sort(ids.end() - k, ids.end());
    }
    offsets.resize(static_cast<size_t>(experts + 1));
    choices.resize(ids.size());
    of_token.resize(ids.size());
    rows.resize(ids.size());
  }
  static Tensor view(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
    return {values.data(), tensor::DType::kI32, {}, shape};
  }
  RoutedRows routed() {
    return {view(offsets, {experts + 1}), view(choices, {tokens * k}), view(of_token, {tokens * k}),
            view(rows, {tokens, k})};
  }
  void sort(const Context& ctx) { sort_by_expert(ctx, routed(), view(ids, {tokens, k})); }
  int64_t expert_of(int64_t row) const {
    return ids[static_cast<size_t>(choices[static_cast<size_t>(row)])];
  }
};

}  // namespace slimexx::ops::testing

// Routed sequences for the tests of balance_router on both backends.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "ops/array.h"
#include "slimexx/ops/router_balance.h"

namespace slimexx::ops::testing {

// Whole sequences.
inline std::vector<int32_t> lengths_of(const std::vector<int32_t>& cu_seqlens) {
  std::vector<int32_t> lengths;
  for (size_t s = 0; s + 1 < cu_seqlens.size(); ++s)
    lengths.push_back(cu_seqlens[s + 1] - cu_seqlens[s]);
  return lengths;
}

// count_choices and balance_router on the host.
struct Balanced {
  std::vector<int64_t> sums;
  Array dlogits;
};
inline Balanced balance_on_host(const Context& ctx, const Array& logits, std::vector<int32_t> ids,
                                const std::vector<int32_t>& cu_seqlens, const RouterRule& rule,
                                const RouterBalanceRule& balance, const Array& dlogits) {
  const int64_t tokens = logits.view().dim(0);
  Balanced b{std::vector<int64_t>(static_cast<size_t>(count_router_sums(rule.num_experts))),
             dlogits.clone()};
  const std::vector<int32_t> lengths = lengths_of(cu_seqlens);
  const PackedSequences sequences{.cu_seqlens = cu_seqlens, .lengths = lengths};
  const Array counts({sequences.count(), rule.num_experts});
  const Tensor sums(b.sums.data(), DType::kI64, {}, {std::ssize(b.sums)});
  count_choices(ctx, counts, sums, {ids.data(), DType::kI32, {}, {tokens, rule.top_k}}, sequences);
  balance_router(ctx, b.dlogits, sums, counts, logits, sequences, rule, balance);
  return b;
}

// The choices of route_forward.
inline std::vector<int32_t> choose(const Context& ctx, const Array& logits,
                                   const RouterRule& rule) {
  const int64_t tokens = logits.view().dim(0);
  std::vector<int32_t> ids(static_cast<size_t>(tokens * rule.top_k));
  const Array weights({tokens, rule.top_k});
  route_forward(ctx, {ids.data(), DType::kI32, {}, {tokens, rule.top_k}}, weights, logits, {},
                rule);
  return ids;
}

// Rows [begin, end).
inline Array take_rows(const Array& x, int64_t begin, int64_t end) {
  const int64_t width = x.view().dim(1);
  Array rows({end - begin, width});
  for (int64_t i = 0; i < rows.size(); ++i) rows[i] = x[begin * width + i];
  return rows;
}

}  // namespace slimexx::ops::testing

// Checks of the experts' loads: counts, the sums of the losses and their gradients, and the updates
// of the biases.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/kernels/router_balance.h"
#include "tests/kernels/experts/router_checks.h"

namespace slimexx::kernels::testing {

struct BalanceCase {
  RouterShape shape;
  std::vector<int32_t> cu_seqlens;
  RouterBalanceRule rule;
  std::vector<float> logits, before;  // [tokens, experts]
  std::vector<int32_t> ids;           // [tokens, top_k]

  BalanceCase(const RouterShape& router, std::vector<int32_t> cu, const RouterBalanceRule& of)
      : shape(router),
        cu_seqlens(std::move(cu)),
        rule(of),
        logits(random_floats(tokens() * router.experts, 1.5f)),
        before(random_floats(tokens() * router.experts, 1e-3f)),
        ids(random_ids(tokens() * router.top_k, router.experts)) {}
  int64_t tokens() const { return cu_seqlens.back(); }
  int64_t sequences() const { return static_cast<int64_t>(cu_seqlens.size()) - 1; }
  // Sequence `s` alone.
  BalanceCase select(int64_t s) const {
    BalanceCase one = *this;
    const int64_t begin = cu_seqlens[s], count = cu_seqlens[s + 1] - begin;
    one.cu_seqlens = {0, static_cast<int32_t>(count)};
    one.logits = take_rows(logits, begin, count, shape.experts);
    one.before = take_rows(before, begin, count, shape.experts);
    one.ids = take_rows(ids, begin, count, shape.top_k);
    return one;
  }
};

struct BalanceResult {
  std::vector<float> counts, dlogits;
  std::vector<int64_t> sums;
};
inline BalanceResult balance(const BalanceCase& c) {
  const int64_t experts = c.shape.experts;
  std::vector<int32_t> host_lengths;
  for (int64_t s = 0; s < c.sequences(); ++s)
    host_lengths.push_back(c.cu_seqlens[s + 1] - c.cu_seqlens[s]);
  const FloatArray logits(c.logits), dlogits(c.before), counts(c.sequences() * experts);
  const IntArray ids(c.ids), cu(c.cu_seqlens), lengths(host_lengths);
  const Array<int64_t> sums(std::vector<int64_t>(static_cast<size_t>(count_router_sums(experts))));
  expect_no_fault(count_choices({.ids = ids.data(),
                                 .cu_seqlens = cu.data(),
                                 .counts = counts.data(),
                                 .sums = sums.data(),
                                 .tokens = c.tokens(),
                                 .sequences = c.sequences(),
                                 .experts = experts,
                                 .top_k = c.shape.top_k},
                                nullptr));
  expect_no_fault(balance_router({.logits = logits.data(),
                                  .cu_seqlens = cu.data(),
                                  .lengths = lengths.data(),
                                  .counts = counts.data(),
                                  .sums = sums.data(),
                                  .dlogits = dlogits.data(),
                                  .tokens = c.tokens(),
                                  .sequences = c.sequences(),
                                  .experts = experts,
                                  .top_k = c.shape.top_k,
                                  .sigmoid = c.shape.sigmoid,
                                  .rule = c.rule},
                                 nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  return {counts.get(), dlogits.get(), sums.get()};
}

// In double, except for loads and counts, which are integers.
struct BalanceReference {
  std::vector<float> counts;
  std::vector<int64_t> loads;
  std::vector<Exact> dlogits, sums;  // sums after the loads, in their units

  explicit BalanceReference(const BalanceCase& c)
      : counts(static_cast<size_t>(c.sequences() * c.shape.experts)),
        loads(static_cast<size_t>(c.shape.experts)),
        sums(static_cast<size_t>(c.shape.experts) + 2) {
    for (int64_t s = 0; s < c.sequences(); ++s) {
      for (int64_t i = c.cu_seqlens[s] * c.shape.top_k; i < c.cu_seqlens[s + 1] * c.shape.top_k;
           ++i) {
        counts[s * c.shape.experts + c.ids[i]] += 1;
        ++loads[c.ids[i]];
      }
      for (int64_t t = c.cu_seqlens[s]; t < c.cu_seqlens[s + 1]; ++t) add_token(c, s, t);
    }
  }

 private:
  void add_token(const BalanceCase& c, int64_t sequence, int64_t token) {
    const auto experts = static_cast<size_t>(c.shape.experts);
    const int64_t length = c.cu_seqlens[sequence + 1] - c.cu_seqlens[sequence];
    const float* logits = c.logits.data() + token * c.shape.experts;
    std::vector<double> softmax(experts), scores(experts), frequency(experts);
    double sum = 0, total = 0, aux = 0;
    for (size_t e = 0; e < experts; ++e) sum += softmax[e] = std::exp(double{logits[e]});
    for (size_t e = 0; e < experts; ++e) {
      softmax[e] /= sum;
      scores[e] = c.shape.sigmoid ? 1 / (1 + std::exp(-double{logits[e]})) : softmax[e];
      total += scores[e];
      frequency[e] = double{counts[sequence * c.shape.experts + static_cast<int64_t>(e)]} *
                     double(experts) / double(c.shape.top_k * length);
    }
    for (size_t e = 0; e < experts; ++e) aux += frequency[e] * scores[e] / total;
    const double share = token_share(c.rule, length), lse = std::log(sum);
    add(sums[experts], aux * share * kAuxLossUnits);
    add(sums[experts + 1], lse * lse * share * kZLossUnits);
    for (size_t e = 0; e < experts; ++e) {
      const double probability = scores[e] / total, slope = c.shape.sigmoid ? 1 - scores[e] : 1.0;
      add(sums[e], probability * kProbabilityUnits);
      const double weight = double{c.rule.aux_loss_coeff} * share * probability * slope;
      const double z = 2 * double{c.rule.z_loss_coeff} * share * lse * softmax[e];
      const double before = double{c.before[token * c.shape.experts + static_cast<int64_t>(e)]};
      dlogits.push_back({before + weight * (frequency[e] - aux) + z,
                         std::abs(before) + weight * (frequency[e] + aux) + std::abs(z)});
    }
  }
  // A term is rounded to a whole number.
  static void add(Exact& sum, double term) {
    sum.value += term;
    sum.magnitude += std::abs(term) + 0x1p17;
  }
};

inline void check_balance(const BalanceCase& c) {
  const int64_t experts = c.shape.experts;
  current_case = "balance of " + std::to_string(c.tokens()) + " tokens, " +
                 std::to_string(c.sequences()) + " sequences, " + std::to_string(experts) +
                 " experts" + (c.shape.sigmoid ? ", sigmoid" : "");
  const BalanceResult got = balance(c), again = balance(c);
  const BalanceReference expected(c);
  expect_bits("counts", got.counts, expected.counts, experts);
  expect_bits("loads", take_rows(got.sums, 0, experts, 1), expected.loads, 1);
  std::vector<double> sums;
  for (auto i = got.sums.begin() + experts; i != got.sums.end(); ++i)
    sums.push_back(static_cast<double>(*i));
  expect_close("sums", sums, expected.sums, 1, kRouterSlack);
  expect_close("dlogits", got.dlogits, expected.dlogits, experts, kRouterSlack);
  expect_bits("dlogits again", again.dlogits, got.dlogits, experts);
  expect_bits("sums again", again.sums, got.sums, 1);
  // A sequence computed alone has the same gradients, and the sums of all sequences add up.
  std::vector<int64_t> total(got.sums.size());
  for (int64_t s = 0; s < c.sequences(); ++s) {
    const BalanceResult alone = balance(c.select(s));
    const int64_t begin = c.cu_seqlens[s], count = c.cu_seqlens[s + 1] - begin;
    expect_bits("dlogits of a sequence alone", alone.dlogits,
                take_rows(got.dlogits, begin, count, experts), experts);
    for (size_t i = 0; i < total.size(); ++i) total[i] += alone.sums[i];
  }
  expect_bits("sums of sequences alone", total, got.sums, 1);
}

inline void check_bias(int64_t experts) {
  current_case = "biases of " + std::to_string(experts) + " experts";
  std::vector<int64_t> loads;
  int64_t total = 0;
  for (int64_t e = 0; e < experts; ++e) {
    loads.push_back(e * 7919 % 5);
    total += loads.back();
  }
  std::vector<float> expected = random_floats(experts);
  const FloatArray bias(expected);
  const Array<int64_t> sums(loads);
  for (int64_t e = 0; e < experts; ++e)
    expected[e] = move_bias(expected[e], loads[e], total, experts, 0.125f);
  expect_no_fault(move_router_bias(bias.data(), sums.data(), experts, 0.125f, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("bias", bias.get(), expected, 1);
}

}  // namespace slimexx::kernels::testing

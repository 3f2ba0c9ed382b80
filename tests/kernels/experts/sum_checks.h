// Checks of the operations around the experts' products: the sum of a token's rows, with the
// residual stream and its norm; and the gradient of SwiGLU for routed rows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/kernels/rows.h"
#include "tests/kernels/experts/router_checks.h"

namespace slimexx::kernels::testing {

inline constexpr float kEpsilon = 1e-6f;

// Routed rows [tokens * top_k, width], and the rows of the tokens to which they are added.
struct SumCase {
  int64_t tokens, top_k, width;
  HostOrder order;
  Bits in, shared, x, norm;
  std::vector<float> weights;

  SumCase(int64_t num_tokens, int64_t experts, int64_t k, int64_t row_width)
      : tokens(num_tokens),
        top_k(k),
        width(row_width),
        order(random_ids(num_tokens * k, experts), experts, k),
        in(random_bf16(num_tokens * k * row_width)),
        shared(random_bf16(num_tokens * row_width)),
        x(random_bf16(num_tokens * row_width)),
        norm(random_bf16(row_width, 0.1f, 1.0f)),
        weights(random_floats(num_tokens * k)) {}
  std::string name() const {
    return std::to_string(tokens) + " tokens of " + std::to_string(top_k) + " rows of " +
           std::to_string(width);
  }
};

inline std::vector<Exact> sum_on_host(const SumCase& c, bool has_weights, bool has_shared) {
  std::vector<Exact> sums(static_cast<size_t>(c.tokens * c.width));
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t i = 0; i < c.width; ++i) {
      Exact& sum = sums[t * c.width + i];
      const auto add = [&sum](double term) {
        sum.value += term;
        sum.magnitude += std::abs(term);
      };
      for (int64_t choice = t * c.top_k; choice < (t + 1) * c.top_k; ++choice)
        add((has_weights ? double{c.weights[choice]} : 1.0) *
            to_float(c.in[c.order.rows[choice] * c.width + i]));
      if (has_shared) add(to_float(c.shared[t * c.width + i]));
    }
  return sums;
}

inline void check_sums(const SumCase& c) {
  const Bf16Array in(c.in), shared(c.shared), x(c.x), norm(c.norm);
  const FloatArray weights(c.weights);
  const IntArray rows(c.order.rows);
  for (const bool has_weights : {true, false})
    for (const bool has_shared : {true, false}) {
      current_case =
          "sums " + c.name() + (has_weights ? ", weights" : "") + (has_shared ? ", shared" : "");
      const Bf16Array y(c.tokens * c.width), alone(c.width);
      const float* w = has_weights ? weights.data() : nullptr;
      const void* added = has_shared ? shared.data() : nullptr;
      expect_no_fault(combine_rows(y.data(), in.data(), w, added, rows.data(), c.tokens, c.top_k,
                                   c.width, nullptr));
      SLX_CUDA(cudaDeviceSynchronize());
      const Bits sum = y.get();
      expect_close("y", sum, sum_on_host(c, has_weights, has_shared), c.width);
      if (c.tokens == 0) continue;
      const int64_t last = c.tokens - 1;
      expect_no_fault(combine_rows(alone.data(), in.data(),
                                   has_weights ? weights.data() + last * c.top_k : nullptr,
                                   has_shared ? shared.data() + last * c.width : nullptr,
                                   rows.data() + last * c.top_k, 1, c.top_k, c.width, nullptr));
      SLX_CUDA(cudaDeviceSynchronize());
      expect_bits("the last token alone", alone.get(), take_rows(sum, last, 1, c.width), c.width);
      if (!has_weights) continue;
      for (const bool has_norm : {true, false}) {
        const Bf16Array expected_x(c.x), expected_y(c.tokens * c.width), own_x(c.x),
            own_y(c.tokens * c.width), branch(sum);
        const auto given = [&](const Bf16Array& a) { return has_norm ? a.data() : nullptr; };
        expect_status(
            "add_rms_norm_forward",
            add_rms_norm_forward(given(expected_y), expected_x.data(), x.data(), branch.data(),
                                 nullptr, given(norm), c.tokens, c.width, kEpsilon, nullptr),
            cudaSuccess);
        expect_no_fault(combine_add_rms_norm(given(own_y), own_x.data(), own_x.data(), in.data(), w,
                                             added, rows.data(), given(norm), c.tokens, c.top_k,
                                             c.width, kEpsilon, nullptr));
        SLX_CUDA(cudaDeviceSynchronize());
        expect_bits("x_sum", own_x.get(), expected_x.get(), c.width);
        expect_bits("y", own_y.get(), expected_y.get(), c.width);
      }
    }
}

// Of `rows` rows, the first `used` belong to experts.
struct SwigluCase {
  int64_t rows, used, width;
  std::vector<int32_t> choices;  // a permutation of the rows
  std::vector<float> weights;
  Bits gate_up, dh;

  SwigluCase(int64_t num_rows, int64_t used_rows, int64_t row_width)
      : rows(num_rows),
        used(used_rows),
        width(row_width),
        choices(HostOrder(random_ids(num_rows, 5), 5, 1).choices),
        weights(random_floats(num_rows)),
        gate_up(random_bf16(num_rows * 2 * row_width, 2.0f)),
        dh(random_bf16(num_rows * row_width)) {}
  int64_t choice_of(int64_t row, bool in_order) const { return in_order ? row : choices[row]; }
};

struct SwigluReference {
  std::vector<Exact> dweights, dgate_up;
  Bits scaled_dh, h;

  // `plain`: the forward's result.
  SwigluReference(const SwigluCase& c, const Bits& plain, bool in_order) {
    for (int64_t row = 0; row < c.used; ++row) {
      const float weight = c.weights[c.choice_of(row, in_order)];
      Exact sum;
      std::vector<Exact> gates, ups;
      for (int64_t i = 0; i < c.width; ++i) {
        const int64_t at = row * c.width + i, gate_at = row * 2 * c.width + i;
        const double g = to_float(c.gate_up[gate_at]), up = to_float(c.gate_up[gate_at + c.width]);
        const double term = double{to_float(c.dh[at])} * to_float(plain[at]);
        sum.value += term;
        sum.magnitude += std::abs(term);
        h.push_back(round_to_bf16(to_float(plain[at]) * weight));
        scaled_dh.push_back(round_to_bf16(to_float(c.dh[at]) * weight));
        const double d = to_float(scaled_dh.back()), s = 1 / (1 + std::exp(-g));
        gates.push_back(
            {d * up * s * (1 + g * (1 - s)), std::abs(d * up * s) * (1 + std::abs(g) * (1 - s))});
        ups.push_back({d * g * s, std::abs(d * g * s)});
      }
      dweights.push_back(sum);
      dgate_up.insert(dgate_up.end(), gates.begin(), gates.end());
      dgate_up.insert(dgate_up.end(), ups.begin(), ups.end());
    }
  }
};

inline void check_swiglu_run(const SwigluCase& c, bool in_order, bool in_place) {
  const int64_t rows = c.rows, used = c.used, width = c.width;
  const Bf16Array gate_up(c.gate_up), plain(rows * width), dh(c.dh), apart(rows * width),
      expected_gates(used * 2 * width);
  const FloatArray weights(c.weights), dweights(rows);
  const IntArray choices(c.choices), count(std::vector<int32_t>{static_cast<int32_t>(used)});
  expect_status("swiglu_forward",
                swiglu_forward(plain.data(), gate_up.data(), rows, width, nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  const SwigluReference expected(c, plain.get(), in_order);
  const Bf16Array scaled(expected.scaled_dh);
  if (used > 0)
    expect_status("swiglu_backward",
                  swiglu_backward(expected_gates.data(), nullptr, scaled.data(), gate_up.data(),
                                  used, width, nullptr),
                  cudaSuccess);
  const Bf16Array& h = in_place ? dh : apart;
  const Bits before = h.get();
  expect_no_fault(expert_swiglu_backward(dweights.data(), h.data(), gate_up.data(), dh.data(),
                                         weights.data(), in_order ? nullptr : choices.data(),
                                         count.data(), rows, width, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  Bits all_h = before;
  std::copy(expected.h.begin(), expected.h.end(), all_h.begin());
  const int64_t cleared = std::min(rows - used, kReadBehindExperts) * width;
  std::fill_n(all_h.begin() + used * width, cleared, uint16_t{0});
  expect_bits("h", h.get(), all_h, width);
  const Bits gates = gate_up.get();
  expect_close("dgate_up", take_rows(gates, 0, used, 2 * width), expected.dgate_up, 2 * width,
               0x1p-18);
  expect_bits("dgate_up", take_rows(gates, 0, used, 2 * width), expected_gates.get(), 2 * width);
  expect_bits("gate_up behind the last row", take_rows(gates, used, rows - used, 2 * width),
              take_rows(c.gate_up, used, rows - used, 2 * width), 2 * width);
  const std::vector<float> by_choice = dweights.get();
  std::vector<float> by_row;
  for (int64_t row = 0; row < used; ++row) by_row.push_back(by_choice[c.choice_of(row, in_order)]);
  expect_close("dweights", by_row, expected.dweights, 1, 0x1p-18);
}

inline void check_swiglu_backward(const SwigluCase& c) {
  for (const bool in_order : {false, true})
    for (const bool in_place : {false, true}) {
      current_case = "swiglu backward of " + std::to_string(c.used) + " of " +
                     std::to_string(c.rows) + " rows of " + std::to_string(c.width) +
                     (in_order ? ", in order" : "") + (in_place ? ", in place" : "");
      check_swiglu_run(c, in_order, in_place);
    }
}

}  // namespace slimexx::kernels::testing

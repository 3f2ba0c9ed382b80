// Checks of the backward pass of heads with their own keys and values: values against the host's in
// double; and equal bits in a second run, for a sequence alone, with lists of all keys, and for
// spans of queries.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/kernels/latent_attention/latent_reference.h"
#include "tests/kernels/latent_attention/wide_case.cuh"

namespace slimexx::kernels::testing {

struct WideGradients {
  Bits dq, dk, dv;
};

inline WideGradients run(const WideOperands& o) {
  for (const Bf16Array* to : {&o.dq, &o.dk})
    to->set(Bits(static_cast<size_t>(o.tokens() * o.of.row()), 0xffff));
  o.dv.set(Bits(static_cast<size_t>(o.tokens() * o.of.value_row()), 0xffff));
  o.workspace->set(std::vector<uint8_t>(o.problem.workspace_bytes, 0xff));
  expect_status("attention_backward", attention_backward(o.problem, nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  o.workspace->get();  // its guards
  return {o.dq.get(), o.dk.get(), o.dv.get()};
}

inline void expect_gradients(const std::string& what, const WideOperands& o,
                             const WideGradients& got, const WideGradients& expected) {
  expect_bits(("dq " + what + ", (token, head) rows").c_str(), got.dq, expected.dq, o.of.dim);
  expect_bits(("dk " + what + ", (token, head) rows").c_str(), got.dk, expected.dk, o.of.dim);
  expect_bits(("dv " + what + ", (token, head) rows").c_str(), got.dv, expected.dv, o.of.values);
}

// Runs the forward of a case, and then the gradients from its rounded output.
class WideReference {
 public:
  explicit WideReference(const WideOperands& o)
      : o_(o), q_(o.q.get()), k_(o.k.get()), v_(o.v.get()), dout_(o.dout.get()) {
    const WideCase& c = o.of;
    out.resize(static_cast<size_t>(o.tokens() * c.value_row()));
    lse.resize(static_cast<size_t>(o.tokens() * c.heads));
    dq.resize(static_cast<size_t>(o.tokens() * c.row()));
    dk.resize(dq.size());
    dv.resize(out.size());
    for (size_t b = 0; b < c.lengths.size(); ++b)
      for (int32_t p = 0; p < c.lengths[b]; ++p)
        for (int64_t h = 0; h < c.heads; ++h) run_query(o.host_cu[b], p, h);
  }
  Bits out;
  std::vector<float> lse;
  std::vector<Exact> dq, dk, dv;

 private:
  static double dot(const uint16_t* a, const uint16_t* b, int64_t n, double* magnitude = nullptr) {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double term = double{to_float(a[i])} * to_float(b[i]);
      sum += term;
      size += std::abs(term);
    }
    if (magnitude != nullptr) *magnitude = size;
    return sum;
  }
  // Adds factor * row[i] to sums[i]. `magnitude`: the magnitude of the factor.
  static void add(Exact* sums, double factor, double magnitude, const uint16_t* row, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const double value = to_float(row[i]);
      sums[i].value += factor * value;
      sums[i].magnitude += magnitude * std::abs(value);
    }
  }

  void run_query(int32_t begin, int32_t position, int64_t head) {
    const WideCase& c = o_.of;
    const int64_t token = begin + position, row = token * c.heads + head;
    const uint16_t* q = q_.data() + row * c.dim;
    const uint16_t* dout = dout_.data() + row * c.values;
    std::vector<int64_t> seen;
    for (int64_t j = 0; j <= position && (c.list == 0 || j < c.list); ++j)
      seen.push_back((begin + (c.list == 0 ? j : o_.host_lists[token * c.list + j])) * c.heads +
                     head);
    std::vector<double> weights;
    double highest = -INFINITY, sum = 0;
    for (const int64_t key : seen) {
      weights.push_back(dot(q, k_.data() + key * c.dim, c.dim) * double{c.scale()});
      highest = std::max(highest, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - highest);
    lse[row] = static_cast<float>(highest + std::log(sum));
    std::vector<double> output(static_cast<size_t>(c.values));
    for (size_t j = 0; j < seen.size(); ++j) {
      weights[j] /= sum;
      for (int64_t i = 0; i < c.values; ++i)
        output[i] += weights[j] * to_float(v_[seen[j] * c.values + i]);
    }
    for (int64_t i = 0; i < c.values; ++i)
      out[row * c.values + i] = round_to_bf16(static_cast<float>(output[i]));
    const double delta = dot(out.data() + row * c.values, dout, c.values);
    for (size_t j = 0; j < seen.size(); ++j) {
      double terms = 0;
      const double dp = dot(dout, v_.data() + seen[j] * c.values, c.values, &terms);
      const double factor = weights[j] * double{c.scale()};
      // Products are fp32 sums: their error follows the terms' magnitudes, even if the terms
      // cancel.
      const double size = factor * (std::abs(dp) + std::abs(delta) + 0x1p-9 * terms);
      add(&dq[row * c.dim], factor * (dp - delta), size, k_.data() + seen[j] * c.dim, c.dim);
      add(&dk[seen[j] * c.dim], factor * (dp - delta), size, q, c.dim);
      add(&dv[seen[j] * c.values], weights[j], weights[j], dout, c.values);
    }
  }

  const WideOperands& o_;
  Bits q_, k_, v_, dout_;
};

// Sequence `b` of `o` alone.
inline WideOperands select_sequence(const WideOperands& o, size_t b) {
  WideCase c = o.of;
  c.lengths = {o.of.lengths[b]};
  WideOperands one(c);
  const int64_t first = o.host_cu[b], count = c.lengths[0];
  const auto copy = [&](const Bf16Array& to, const Bf16Array& from, int64_t row) {
    to.set(take_rows(from.get(), first, count, row));
  };
  copy(one.q, o.q, c.row());
  copy(one.k, o.k, c.row());
  copy(one.v, o.v, c.value_row());
  copy(one.out, o.out, c.value_row());
  copy(one.dout, o.dout, c.value_row());
  one.lse.set(take_rows(o.lse.get(), first, count, c.heads));
  one.lists.set(take_rows(o.host_lists, first, count, c.list));
  return one;
}

inline void check_gradients(const WideCase& c) {
  current_case = describe(c);
  current_seed = c.seed;
  const WideOperands o(c);
  const WideReference expected(o);
  o.out.set(expected.out);
  o.lse.set(expected.lse);
  const WideGradients got = run(o);
  expect_close("dq, (token, head) rows", got.dq, expected.dq, c.dim, kWeightSlack);
  expect_close("dk, (token, head) rows", got.dk, expected.dk, c.dim, kWeightSlack);
  expect_close("dv, (token, head) rows", got.dv, expected.dv, c.values, kWeightSlack);
  expect_gradients("again", o, run(o), got);
  for (size_t b = 0; b < c.lengths.size(); ++b) {
    if (c.lengths[b] == 0) continue;
    const WideOperands one = select_sequence(o, b);
    const int64_t first = o.host_cu[b], count = c.lengths[b];
    expect_gradients(
        "of sequence " + std::to_string(b) + " alone", one, run(one),
        {take_rows(got.dq, first, count, c.row()), take_rows(got.dk, first, count, c.row()),
         take_rows(got.dv, first, count, c.value_row())});
  }
}

// Lists of all keys give the same bits as no lists.
inline void check_whole_list_gradients(WideCase c) {
  current_case = describe(c);
  current_seed = c.seed;
  const WideOperands full(c);
  c.list = *std::max_element(c.lengths.begin(), c.lengths.end()) + 3;
  const WideOperands listed(c);
  const WideReference forward(full);
  for (const WideOperands* o : {&full, &listed}) {
    o->out.set(forward.out);
    o->lse.set(forward.lse);
  }
  expect_gradients("by lists of all keys", listed, run(listed), run(full));
}

// Gradients for two spans of each sequence's queries. All other queries are zero, so they change no
// sum, and their dq is not checked.
inline void check_spans(const WideCase& c) {
  current_case = "spans, " + describe(c);
  current_seed = c.seed;
  WideOperands o(c);
  const WideReference forward(o);
  std::vector<int32_t> spans;
  std::vector<bool> is_own(static_cast<size_t>(o.tokens()));
  for (size_t b = 0; b < c.lengths.size(); ++b)
    for (const int32_t part : {1, 4}) {
      const int32_t begin = c.lengths[b] * part / 6, end = c.lengths[b] * (part + 1) / 6;
      spans.insert(spans.end(), {begin, end});
      for (int32_t p = begin; p < end; ++p) is_own[o.host_cu[b] + p] = true;
    }
  const auto keep = [&](auto values, int64_t row) {
    for (size_t i = 0; i < values.size(); ++i)
      if (!is_own[static_cast<int64_t>(i) / row]) values[i] = 0;
    return values;
  };
  o.q.set(keep(o.q.get(), c.row()));
  o.dout.set(keep(o.dout.get(), c.value_row()));
  o.out.set(keep(forward.out, c.value_row()));
  o.lse.set(keep(forward.lse, c.heads));
  WideGradients zeros = run(o);
  const Array<int32_t> device_spans(spans);
  o.problem.query_spans = device_spans.data();
  // The dq of other queries is either unchanged or zero.
  WideGradients some = run(o);
  for (size_t i = 0; i < zeros.dq.size(); ++i)
    if (!is_own[static_cast<int64_t>(i) / c.row()] && some.dq[i] == 0xffff)
      some.dq[i] = zeros.dq[i];
  expect_gradients("of spans", o, some, zeros);
}

}  // namespace slimexx::kernels::testing

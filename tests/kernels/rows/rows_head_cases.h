// Checks head norms and RoPE against the host in double: forward to rows and to pages, and
// backward.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/kernels/rows/rows_head_problem.h"
#include "tests/kernels/rows/rows_norm_cases.h"

namespace slimexx::kernels::testing {

// `without_values`: rows of the result have no value heads.
inline Bits run_heads(const HeadProblem& p, bool in_place = false, int64_t shift = 0,
                      bool without_values = false) {
  const HeadDevice d(p, shift);
  const int64_t heads = p.c.query_heads + (without_values ? 1 : 2) * p.c.kv_heads;
  const Bf16Array in(p.in, shift), out(p.c.tokens * heads * p.c.head_dim, shift);
  const Bf16Array& target = in_place ? in : out;
  expect_status("qk_norm_rotary_forward",
                qk_norm_rotary_forward(target.data(), heads, in.data(), d.q, d.k, kEps, d.rotary,
                                       {}, d.shape, 0),
                cudaSuccess);
  return target.get();
}

// Runs with pages. `expected` is the result of run_heads: its queries must be in `out`, its keys
// and values in the pages. Slots without a token, and all of `out` after the queries, must not
// change. If not in place, rows of `out` have no value heads.
inline void check_pages(const HeadProblem& p, const Bits& expected, bool in_place) {
  const HeadDevice d(p, 0);
  const int64_t heads = p.c.query_heads + (in_place ? 2 : 1) * p.c.kv_heads;
  const int64_t out_row = heads * p.c.head_dim;
  const int64_t kv = p.c.kv_heads * p.c.head_dim, q = p.c.query_heads * p.c.head_dim;
  const Bits poison(static_cast<size_t>(p.c.tokens * kv), 0x1234);
  const Bits untouched(static_cast<size_t>(p.c.tokens * out_row), 0x1234);
  const Bf16Array in(p.in), own(untouched), keys(poison), values(poison);
  const Array<int32_t> slots(p.slots);
  const Bf16Array& out = in_place ? in : own;
  expect_status("qk_norm_rotary_forward with pages",
                qk_norm_rotary_forward(out.data(), heads, in.data(), d.q, d.k, kEps, d.rotary,
                                       {keys.data(), values.data(), slots.data()}, d.shape, 0),
                cudaSuccess);
  Bits wanted = in_place ? p.in : untouched, k = poison, v = poison;
  for (int64_t t = 0; t < p.c.tokens; ++t) {
    const auto from = expected.begin() + t * p.row;
    std::copy_n(from, q, wanted.begin() + t * out_row);
    if (p.slots[static_cast<size_t>(t)] < 0) continue;
    std::copy_n(from + q, kv, k.begin() + p.slots[static_cast<size_t>(t)] * kv);
    std::copy_n(from + q + kv, kv, v.begin() + p.slots[static_cast<size_t>(t)] * kv);
  }
  expect_bits("queries beside pages", out.get(), wanted, out_row);
  expect_bits("key pages", keys.get(), k, kv);
  expect_bits("value pages", values.get(), v, kv);
}

// (a, b) of every pair -> (a c - b s, b c + a s), with s times `sign`; the same for magnitudes.
inline void rotate_exactly(std::vector<Exact>& head, const HeadProblem& p, int64_t token,
                           double sign) {
  const int64_t half = p.c.rotary_dim / 2, row = p.positions[static_cast<size_t>(token)] * half;
  for (int64_t i = 0; i < half; ++i) {
    Exact& a = head[p.c.interleaved ? 2 * i : i];
    Exact& b = head[p.c.interleaved ? 2 * i + 1 : i + half];
    const double c = p.cos[row + i], s = sign * p.sin[row + i];
    const Exact old_a = a, old_b = b;
    a = {old_a.value * c - old_b.value * s,
         old_a.magnitude * std::abs(c) + old_b.magnitude * std::abs(s)};
    b = {old_b.value * c + old_a.value * s,
         old_b.magnitude * std::abs(c) + old_a.magnitude * std::abs(s)};
  }
}

enum class HeadKind { kQuery, kKey, kValue };
inline HeadKind kind_of(const HeadCase& c, int64_t head) {
  if (head < c.query_heads) return HeadKind::kQuery;
  return head < c.query_heads + c.kv_heads ? HeadKind::kKey : HeadKind::kValue;
}
inline const Bits* norm_of(const HeadProblem& p, HeadKind kind) {
  if (kind == HeadKind::kQuery) return p.c.q_norm ? &p.q_norm : nullptr;
  return kind == HeadKind::kKey && p.c.k_norm ? &p.k_norm : nullptr;
}

inline std::vector<Exact> exact_heads(const HeadProblem& p) {
  std::vector<Exact> out(p.in.size());
  const int64_t heads = p.c.query_heads + 2 * p.c.kv_heads, dim = p.c.head_dim;
  for (int64_t index = 0; index < p.c.tokens * heads; ++index) {
    const HeadKind kind = kind_of(p.c, index % heads);
    const Bits x(p.in.begin() + index * dim, p.in.begin() + (index + 1) * dim);
    const Bits* norm = norm_of(p, kind);
    std::vector<Exact> head(static_cast<size_t>(dim));
    if (norm != nullptr) head = exact_norm(x, *norm, dim);
    if (norm == nullptr)
      for (int64_t i = 0; i < dim; ++i) head[i] = {to_float(x[i]), std::abs(to_float(x[i]))};
    if (kind != HeadKind::kValue) rotate_exactly(head, p, index / heads, 1.0);
    std::copy(head.begin(), head.end(), out.begin() + index * dim);
  }
  return out;
}

struct HeadGradient {
  Bits d;
  std::vector<float> dq, dk;
};

inline HeadGradient run_heads_backward(const HeadProblem& p, const std::vector<float>& dq,
                                       const std::vector<float>& dk, int64_t shift = 0) {
  const HeadDevice device(p, shift);
  const Bf16Array d(p.gradient, shift), raw(p.in, shift);
  const FloatArray q(dq), k(dk);
  const Array<char> workspace(
      static_cast<int64_t>(qk_norm_rotary_backward_workspace(device.shape)));
  const bool has_norm = p.c.q_norm || p.c.k_norm;
  expect_status("qk_norm_rotary_backward",
                qk_norm_rotary_backward(d.data(), p.c.q_norm ? q.data() : nullptr,
                                        p.c.k_norm ? k.data() : nullptr,
                                        has_norm ? raw.data() : nullptr, device.q, device.k, kEps,
                                        device.rotary, device.shape, workspace.data(), 0),
                cudaSuccess);
  workspace.get();
  return {d.get(), q.get(), k.get()};
}

inline void norm_backward_exactly(std::vector<Exact>& g, const uint16_t* x, const Bits& w,
                                  std::vector<Exact>& dw) {
  const size_t dim = g.size();
  const double r = exact_inverse_rms(x, static_cast<int64_t>(dim));
  double mean = 0, size = 0;
  for (size_t i = 0; i < dim; ++i) {
    const double factor = to_float(w[i]) * to_float(x[i]) * r / double(dim);
    mean += g[i].value * factor, size += g[i].magnitude * std::abs(factor);
  }
  for (size_t i = 0; i < dim; ++i) {
    const double normed = to_float(x[i]) * r, weight = to_float(w[i]);
    dw[i].value += g[i].value * normed, dw[i].magnitude += g[i].magnitude * std::abs(normed);
    g[i] = {r * (g[i].value * weight - normed * mean),
            r * (g[i].magnitude * std::abs(weight) + std::abs(normed) * size)};
  }
}

inline void check_heads_backward(const HeadProblem& p) {
  const int64_t heads = p.c.query_heads + 2 * p.c.kv_heads, dim = p.c.head_dim;
  const std::vector<float> dq = random_floats(dim), dk = random_floats(dim);
  const HeadGradient got = run_heads_backward(p, dq, dk);
  std::vector<Exact> d(p.in.size()), exact_dq, exact_dk;
  for (float v : dq) exact_dq.push_back({v, std::abs(v)});
  for (float v : dk) exact_dk.push_back({v, std::abs(v)});
  for (int64_t index = 0; index < p.c.tokens * heads; ++index) {
    const HeadKind kind = kind_of(p.c, index % heads);
    std::vector<Exact> head(static_cast<size_t>(dim));
    for (int64_t i = 0; i < dim; ++i) {
      const float v = to_float(p.gradient[index * dim + i]);
      head[i] = {v, std::abs(v)};
    }
    if (kind != HeadKind::kValue) rotate_exactly(head, p, index / heads, -1.0);
    if (const Bits* norm = norm_of(p, kind)) {
      norm_backward_exactly(head, &p.in[index * dim], *norm,
                            kind == HeadKind::kQuery ? exact_dq : exact_dk);
    }
    std::copy(head.begin(), head.end(), d.begin() + index * dim);
  }
  expect_close("d", got.d, d, p.row);
  expect_close("dq_norm", got.dq, exact_dq, dim);
  expect_close("dk_norm", got.dk, exact_dk, dim);
  for (const int64_t shift : {0, 1}) {
    const HeadGradient again = run_heads_backward(p, dq, dk, shift);
    expect_bits(shift == 0 ? "d again" : "d off alignment", again.d, got.d, p.row);
    expect_bits(shift == 0 ? "dq_norm again" : "dq_norm off alignment", again.dq, got.dq, dim);
    expect_bits(shift == 0 ? "dk_norm again" : "dk_norm off alignment", again.dk, got.dk, dim);
  }
  const int64_t token = p.c.tokens / 2;
  expect_bits("token alone: d", run_heads_backward(take_token(p, token), dq, dk).d,
              take_rows(got.d, token, 1, p.row), p.row);
}

inline void check_heads(const HeadCase& c) {
  current_case = "qk_norm_rotary tokens " + std::to_string(c.tokens) + " heads " +
                 std::to_string(c.query_heads) + " " + std::to_string(c.kv_heads) + " dim " +
                 std::to_string(c.head_dim) + " rotary " + std::to_string(c.rotary_dim) +
                 (c.interleaved ? " interleaved" : " halves") + " norms " +
                 std::to_string(c.q_norm) + std::to_string(c.k_norm);
  const HeadProblem p(c);
  const Bits out = run_heads(p);
  expect_close("values", out, exact_heads(p), p.row);
  expect_bits("again", run_heads(p), out, p.row);
  expect_bits("in place", run_heads(p, true), out, p.row);
  expect_bits("off alignment", run_heads(p, false, 1), out, p.row);
  const int64_t turned = p.row - c.kv_heads * c.head_dim;
  expect_bits("without values", run_heads(p, false, 0, true),
              pack_rows(out, c.tokens, turned, p.row), turned);
  for (const int64_t token : {int64_t{0}, c.tokens - 1}) {
    expect_bits("token alone", run_heads(take_token(p, token)), take_rows(out, token, 1, p.row),
                p.row);
  }
  check_pages(p, out, false);
  check_pages(p, out, true);
  check_heads_backward(p);
}

}  // namespace slimexx::kernels::testing

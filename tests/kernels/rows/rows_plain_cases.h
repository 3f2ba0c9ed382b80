// Checks SwiGLU, gathers, the embedding gradient, element-wise operations and column sums.
#pragma once
#include <cstdint>
#include <vector>

#include "tests/kernels/rows/rows_norm_cases.h"

namespace slimexx::kernels::testing {

inline Bits run_swiglu(const Bits& gate_up, int64_t rows, int64_t width, int64_t shift = 0) {
  const Bf16Array in(gate_up, shift), h(rows * width, shift);
  expect_status("swiglu_forward", swiglu_forward(h.data(), in.data(), rows, width, 0), cudaSuccess);
  return h.get();
}
inline Bits run_swiglu_backward(const Bits& dh, const Bits& gate_up, int64_t rows, int64_t width,
                                int64_t shift = 0) {
  const Bf16Array in(gate_up, shift), d(dh, shift), out(rows * 2 * width, shift);
  expect_status("swiglu_backward",
                swiglu_backward(out.data(), nullptr, d.data(), in.data(), rows, width, 0),
                cudaSuccess);
  return out.get();
}
struct SwigluGradient {
  Bits dgate_up, h;
};
// Checks the backward, which also computes h. In place: overwrites dh and gate_up.
inline SwigluGradient run_swiglu_both(const Bits& dh, const Bits& gate_up, int64_t rows,
                                      int64_t width, int64_t shift, bool in_place) {
  const Bf16Array in(gate_up, shift), d(dh, shift);
  const Bf16Array own(rows * 2 * width, shift), own_h(rows * width, shift);
  const Bf16Array &out = in_place ? in : own, &h = in_place ? d : own_h;
  expect_status("swiglu_backward with h",
                swiglu_backward(out.data(), h.data(), d.data(), in.data(), rows, width, 0),
                cudaSuccess);
  return {out.get(), h.get()};
}

inline void check_swiglu(int64_t rows, int64_t width, float scale) {
  current_case = "swiglu [" + std::to_string(rows) + ", " + std::to_string(width) + "] scale " +
                 std::to_string(scale);
  const Bits in = random_bf16(rows * 2 * width, scale), dh = random_bf16(rows * width);
  std::vector<Exact> h(dh.size()), d(in.size());
  for (int64_t i = 0; i < rows * width; ++i) {
    const int64_t row = i / width, gate = row * 2 * width + i % width, up = gate + width;
    const double g = to_float(in[gate]), u = to_float(in[up]), dy = to_float(dh[i]);
    const double s = 1 / (1 + std::exp(-g)), rest = 1 / (1 + std::exp(g));
    h[i] = {g * s * u, std::abs(g * s * u)};
    d[gate] = {dy * u * s * (1 + g * rest), std::abs(dy * u) * s * (1 + std::abs(g) * rest)};
    d[up] = {dy * g * s, std::abs(dy * g * s)};
  }
  // e^-|g| below the smallest normal float flushes to zero.
  for (std::vector<Exact>* v : {&h, &d})
    for (Exact& e : *v) e.magnitude += 0x1p-90;
  constexpr double kExpSlack = 0x1p-16;  // for the hardware's exponential of a rounded argument
  const Bits forward = run_swiglu(in, rows, width),
             backward = run_swiglu_backward(dh, in, rows, width);
  expect_close("h", forward, h, width, kExpSlack);
  expect_close("dgate_up", backward, d, 2 * width, kExpSlack);
  expect_bits("h again", run_swiglu(in, rows, width), forward, width);
  expect_bits("h off alignment", run_swiglu(in, rows, width, 1), forward, width);
  expect_bits("dgate_up off alignment", run_swiglu_backward(dh, in, rows, width, 1), backward,
              2 * width);
  for (const bool in_place : {false, true}) {
    for (const int64_t shift : {0, 1}) {
      const SwigluGradient both = run_swiglu_both(dh, in, rows, width, shift, in_place);
      expect_bits("dgate_up beside h", both.dgate_up, backward, 2 * width);
      expect_bits("h beside dgate_up", both.h, forward, width);
    }
  }
  const int64_t row = rows - 1;
  const Bits alone = take_rows(in, row, 1, 2 * width);
  expect_bits("row alone: h", run_swiglu(alone, 1, width), take_rows(forward, row, 1, width),
              width);
  expect_bits("row alone: dgate_up",
              run_swiglu_backward(take_rows(dh, row, 1, width), alone, 1, width),
              take_rows(backward, row, 1, 2 * width), 2 * width);
}

inline void check_gather(int64_t count, int64_t table_rows, int64_t width, int64_t padding) {
  current_case = "gather_rows [" + std::to_string(count) + ", " + std::to_string(width) +
                 "] padding " + std::to_string(padding);
  const int64_t stride = width + padding;
  const Bits table = random_bf16(table_rows * stride), dy = random_bf16(count * stride);
  std::vector<int32_t> rows, distinct(static_cast<size_t>(table_rows));
  std::mt19937_64 engine(++current_seed);
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(engine() % table_rows));
  const Bf16Array x(table), y(Bits(static_cast<size_t>(count * stride)));
  const Array<int32_t> index(rows);
  expect_status("gather_rows",
                gather_rows(y.data(), stride, x.data(), stride, index.data(), count, width, 0),
                cudaSuccess);
  Bits expected(static_cast<size_t>(count * stride));
  for (int64_t i = 0; i < count; ++i)
    std::copy_n(table.begin() + rows[i] * stride, width, expected.begin() + i * stride);
  expect_bits("gathered", y.get(), expected, stride);
  const int64_t copied = std::min(count, table_rows);
  expect_status("copy_rows", copy_rows(y.data(), stride, x.data(), stride, copied, width, 0),
                cudaSuccess);
  for (int64_t i = 0; i < copied; ++i)
    std::copy_n(table.begin() + i * stride, width, expected.begin() + i * stride);
  expect_bits("copied", y.get(), expected, stride);

  const int64_t scattered = std::min(count, table_rows);
  for (size_t i = 0; i < distinct.size(); ++i) distinct[i] = static_cast<int32_t>(i);
  std::shuffle(distinct.begin(), distinct.end(), engine);
  const Bf16Array added(dy);
  const Array<int32_t> targets(distinct);
  expect_status(
      "scatter_add_rows",
      scatter_add_rows(x.data(), stride, added.data(), stride, targets.data(), scattered, width, 0),
      cudaSuccess);
  expected = table;
  for (int64_t i = 0; i < scattered; ++i)
    for (int64_t c = 0; c < width; ++c) {
      uint16_t& e = expected[distinct[i] * stride + c];
      e = round_to_bf16(to_float(e) + to_float(dy[i * stride + c]));
    }
  expect_bits("scattered", x.get(), expected, stride);
}

// The result must equal the chain of additions over ascending i, bit for bit.
inline void expect_embedding_backward(const std::vector<int32_t>& tokens, int64_t width,
                                      int64_t vocabulary, int64_t shift) {
  const auto count = static_cast<int64_t>(tokens.size());
  const Bits dy = random_bf16(count * width);
  const std::vector<float> table = random_floats(vocabulary * width);
  const FloatArray dtable(table, shift);
  const Bf16Array rows(dy, shift);
  const Array<int32_t> index(tokens);
  const auto bytes = static_cast<int64_t>(embedding_backward_workspace(count, vocabulary));
  const Array<char> workspace(bytes);
  expect_status("embedding_backward",
                embedding_backward(dtable.data(), rows.data(), index.data(), count, width,
                                   vocabulary, workspace.data(), 0),
                cudaSuccess);
  workspace.get();
  std::vector<float> expected = table;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t c = 0; c < width; ++c)
      expected[tokens[i] * width + c] += to_float(dy[i * width + c]);
  expect_bits("dtable", dtable.get(), expected, width);
}

inline void check_embedding_backward(int64_t count, int64_t width, int64_t vocabulary,
                                     int64_t range, int64_t shift) {
  current_case = "embedding_backward [" + std::to_string(count) + ", " + std::to_string(width) +
                 "] vocabulary " + std::to_string(vocabulary) + " tokens " + std::to_string(range);
  std::vector<int32_t> tokens;
  std::mt19937_64 engine(++current_seed);
  for (int64_t i = 0; i < count; ++i)  // half of the draws give the largest id
    tokens.push_back(static_cast<int32_t>(
        vocabulary - 1 - (engine() % 2 == 0 ? 0 : engine() % static_cast<uint64_t>(range))));
  expect_embedding_backward(tokens, width, vocabulary, shift);
}

// Token t occurs lengths[t] times, shuffled.
inline void check_embedding_runs(const std::vector<int>& lengths, int64_t width) {
  current_case = "embedding_backward, runs of given lengths, width " + std::to_string(width);
  std::vector<int32_t> tokens;
  for (size_t t = 0; t < lengths.size(); ++t)
    tokens.insert(tokens.end(), static_cast<size_t>(lengths[t]), static_cast<int32_t>(t));
  std::shuffle(tokens.begin(), tokens.end(), std::mt19937_64(++current_seed));
  expect_embedding_backward(tokens, width, static_cast<int64_t>(lengths.size()), 0);
}

template <class T>
std::vector<T> random_elements(int64_t n) {
  if constexpr (sizeof(T) == 2) return random_bf16(n, 3.0f);
  if constexpr (sizeof(T) == 4) return random_floats(n, 3.0f);
}
template <class T>
T round_to(float f) {
  if constexpr (sizeof(T) == 2) return round_to_bf16(f);
  if constexpr (sizeof(T) == 4) return f;
}

template <class T>
void check_elementwise(int64_t n, int64_t shift) {
  current_case = "element-wise n " + std::to_string(n) + " bytes " + std::to_string(sizeof(T)) +
                 " shift " + std::to_string(shift);
  constexpr Element kType = sizeof(T) == 2 ? Element::kBF16 : Element::kF32;
  const std::vector<T> a = random_elements<T>(n), b = random_elements<T>(n);
  std::vector<T> sum(a), scaled_sum(a), scaled(a);
  const float factor = -0.3f;
  for (size_t i = 0; i < a.size(); ++i) {
    const float product = factor * to_float(b[i]);
    sum[i] = round_to<T>(to_float(a[i]) + to_float(b[i]));
    scaled_sum[i] = round_to<T>(to_float(a[i]) + product);
    scaled[i] = round_to<T>(factor * to_float(a[i]));
  }
  const Array<T> da(a, shift), db(b, shift), y(n, shift);
  expect_status("add", add(y.data(), da.data(), db.data(), kType, n, 0), cudaSuccess);
  expect_bits("add", y.get(), sum, n);
  expect_status("add in place", add(db.data(), da.data(), db.data(), kType, n, 0), cudaSuccess);
  expect_bits("add in place", db.get(), sum, n);
  const Array<T> into(a, shift), added(b, shift);
  expect_status("add_scaled", add_scaled(into.data(), added.data(), factor, kType, n, 0),
                cudaSuccess);
  expect_bits("add_scaled", into.get(), scaled_sum, n);
  expect_status("scale", scale(da.data(), factor, kType, n, 0), cudaSuccess);
  expect_bits("scale", da.get(), scaled, n);
}

template <class Y, class X>
void check_convert(int64_t n, int64_t shift) {
  current_case = "convert n " + std::to_string(n) + " bytes " + std::to_string(sizeof(X)) + " to " +
                 std::to_string(sizeof(Y)) + " shift " + std::to_string(shift);
  std::vector<X> x = random_elements<X>(n);
  std::vector<Y> expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) expected[i] = round_to<Y>(to_float(x[i]));
  const Array<X> dx(x, shift);
  const Array<Y> y(n, shift);
  const auto type = [](size_t bytes) { return bytes == 2 ? Element::kBF16 : Element::kF32; };
  expect_status("convert", convert(y.data(), type(sizeof(Y)), dx.data(), type(sizeof(X)), n, 0),
                cudaSuccess);
  expect_bits("convert", y.get(), expected, n);
}

inline std::vector<float> run_column_sums(const std::vector<float>& dbias, const Bits& dy,
                                          int64_t rows, int64_t n, int64_t padding, int64_t shift) {
  const Bf16Array in(spread_rows(dy, rows, n, n + padding), shift);
  const FloatArray sums(dbias, shift);
  const Array<char> workspace(static_cast<int64_t>(column_sums_workspace(rows, n)));
  expect_status("column_sums",
                column_sums(sums.data(), in.data(), n + padding, rows, n, workspace.data(), 0),
                cudaSuccess);
  workspace.get();
  return sums.get();
}

inline void check_column_sums(int64_t rows, int64_t n) {
  current_case = "column_sums [" + std::to_string(rows) + ", " + std::to_string(n) + "]";
  const Bits dy = random_bf16(rows * n);
  const std::vector<float> dbias = random_floats(n);
  std::vector<Exact> expected;
  for (float v : dbias) expected.push_back({v, std::abs(v)});
  for (size_t i = 0; i < dy.size(); ++i) {
    Exact& e = expected[i % static_cast<size_t>(n)];
    e.value += to_float(dy[i]), e.magnitude += std::abs(to_float(dy[i]));
  }
  const std::vector<float> got = run_column_sums(dbias, dy, rows, n, 0, 0);
  expect_close("values", got, expected, n);
  expect_bits("again", run_column_sums(dbias, dy, rows, n, 0, 0), got, n);
  expect_bits("stride + 8", run_column_sums(dbias, dy, rows, n, 8, 0), got, n);
  expect_bits("off alignment", run_column_sums(dbias, dy, rows, n, 1, 1), got, n);
}

}  // namespace slimexx::kernels::testing

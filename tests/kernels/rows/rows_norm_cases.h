// Checks RMSNorm against the host in double: forward, forward with a branch added, and backward.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/kernels/rows.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

inline constexpr float kEps = 1e-5f;

inline double exact_inverse_rms(const uint16_t* x, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += double(to_float(x[i])) * to_float(x[i]);
  return 1.0 / std::sqrt(sum / double(width) + double(kEps));
}

inline std::vector<Exact> exact_norm(const Bits& x, const Bits& w, int64_t width) {
  std::vector<Exact> y(x.size());
  for (size_t row = 0; row * width < x.size(); ++row) {
    const double r = exact_inverse_rms(&x[row * width], width);
    for (int64_t i = 0; i < width; ++i) {
      const double v = double(to_float(w[i])) * to_float(x[row * width + i]) * r;
      y[row * width + i] = {v, std::abs(v)};
    }
  }
  return y;
}

inline Bits run_norm(const Bits& x, const Bits& w, int64_t rows, int64_t width, int64_t padding = 0,
                     int64_t shift = 0, bool in_place = false) {
  const int64_t stride = width + padding;
  const Bf16Array dx(spread_rows(x, rows, width, stride), shift), dw(w, shift);
  Bf16Array dy(rows * stride, shift);
  uint16_t* y = in_place ? dx.data() : dy.data();
  expect_status("rms_norm_forward",
                rms_norm_forward(y, stride, dx.data(), stride, dw.data(), rows, width, kEps, 0),
                cudaSuccess);
  return pack_rows((in_place ? dx : dy).get(), rows, width, stride);
}

inline void check_norm(int64_t rows, int64_t width) {
  current_case = "rms_norm_forward [" + std::to_string(rows) + ", " + std::to_string(width) + "]";
  const Bits x = random_bf16(rows * width, 3.0f), w = random_bf16(width, 0.3f, 1.0f);
  const Bits y = run_norm(x, w, rows, width);
  expect_close("values", y, exact_norm(x, w, width), width);
  expect_bits("again", run_norm(x, w, rows, width), y, width);
  expect_bits("in place", run_norm(x, w, rows, width, 0, 0, true), y, width);
  expect_bits("stride + 8", run_norm(x, w, rows, width, 8), y, width);
  expect_bits("stride + 1", run_norm(x, w, rows, width, 1), y, width);
  expect_bits("off alignment", run_norm(x, w, rows, width, 0, 3), y, width);
  for (int64_t row : {int64_t{0}, rows / 2, rows - 1}) {
    expect_bits("row alone", run_norm(take_rows(x, row, 1, width), w, 1, width),
                take_rows(y, row, 1, width), width);
  }
}

struct AddNorm {
  Bits y, x_sum;
};
enum class Into { kOwn, kX, kBranch };

inline AddNorm run_add_norm(const Bits& x, const Bits& branch, const Bits* branch_norm,
                            const Bits* w, int64_t rows, int64_t width, Into into = Into::kOwn,
                            int64_t shift = 0) {
  const Bf16Array dx(x, shift), db(branch, shift), none(0);
  const Bf16Array dn(branch_norm ? *branch_norm : Bits{}, shift), dw(w ? *w : Bits{}, shift);
  const Bf16Array own(rows * width, shift), y(w ? rows * width : 0, shift);
  const Bf16Array& sum = into == Into::kOwn ? own : into == Into::kX ? dx : db;
  expect_status("add_rms_norm_forward",
                add_rms_norm_forward(w ? y.data() : nullptr, sum.data(), dx.data(), db.data(),
                                     branch_norm ? dn.data() : nullptr, w ? dw.data() : nullptr,
                                     rows, width, kEps, 0),
                cudaSuccess);
  return {y.get(), sum.get()};
}

inline std::vector<Exact> exact_sum(const Bits& x, const Bits& branch, const Bits* branch_norm,
                                    int64_t width) {
  std::vector<Exact> sum(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const auto column = i % static_cast<size_t>(width);
    double added = to_float(branch[i]);
    if (branch_norm) {
      added *= to_float((*branch_norm)[column]) * exact_inverse_rms(&branch[i - column], width);
    }
    sum[i] = {to_float(x[i]) + added, std::abs(to_float(x[i])) + std::abs(added)};
  }
  return sum;
}

inline void check_add_norm(int64_t rows, int64_t width, bool with_branch_norm) {
  current_case = "add_rms_norm_forward [" + std::to_string(rows) + ", " + std::to_string(width) +
                 "] branch norm " + std::to_string(with_branch_norm);
  const Bits x = random_bf16(rows * width, 3.0f), branch = random_bf16(rows * width, 0.5f);
  const Bits norm = random_bf16(width, 0.3f, 1.0f), w = random_bf16(width, 0.3f, 1.0f);
  const Bits* branch_norm = with_branch_norm ? &norm : nullptr;
  const AddNorm r = run_add_norm(x, branch, branch_norm, &w, rows, width);
  expect_close("x_sum", r.x_sum, exact_sum(x, branch, branch_norm, width), width);
  expect_bits("y as rms_norm_forward of x_sum", r.y, run_norm(r.x_sum, w, rows, width), width);
  for (const Into into : {Into::kX, Into::kBranch}) {
    const AddNorm same = run_add_norm(x, branch, branch_norm, &w, rows, width, into);
    expect_bits("x_sum in place", same.x_sum, r.x_sum, width);
    expect_bits("y in place", same.y, r.y, width);
  }
  const AddNorm shifted = run_add_norm(x, branch, branch_norm, &w, rows, width, Into::kOwn, 5);
  expect_bits("x_sum off alignment", shifted.x_sum, r.x_sum, width);
  expect_bits("y off alignment", shifted.y, r.y, width);
  expect_bits("x_sum without y", run_add_norm(x, branch, branch_norm, nullptr, rows, width).x_sum,
              r.x_sum, width);
  const int64_t row = rows - 1;
  const AddNorm alone = run_add_norm(take_rows(x, row, 1, width), take_rows(branch, row, 1, width),
                                     branch_norm, &w, 1, width);
  expect_bits("row alone: x_sum", alone.x_sum, take_rows(r.x_sum, row, 1, width), width);
  expect_bits("row alone: y", alone.y, take_rows(r.y, row, 1, width), width);
}

struct NormGradient {
  Bits dx;
  std::vector<float> dw;
};

inline NormGradient run_norm_backward(const Bits& dx, const std::vector<float>& dw, const Bits& dy,
                                      const Bits& x, const Bits& w, bool accumulate,
                                      int64_t shift = 0, bool in_place = false) {
  const auto width = static_cast<int64_t>(w.size());
  const auto rows = static_cast<int64_t>(x.size()) / width;
  const Bf16Array ddx(dx, shift), ddy(dy, shift), devx(x, shift), devw(w, shift);
  const FloatArray ddw(dw);
  const Array<char> workspace(static_cast<int64_t>(rms_norm_backward_workspace(rows, width)));
  const Bf16Array& out = in_place ? ddy : ddx;
  expect_status(
      "rms_norm_backward",
      rms_norm_backward(out.data(), width, ddw.data(), ddy.data(), width, devx.data(), width,
                        devw.data(), rows, width, kEps, accumulate, workspace.data(), 0),
      cudaSuccess);
  workspace.get();
  return {out.get(), ddw.get()};
}

struct ExactNormGradient {
  std::vector<Exact> dx, dw;
};
inline ExactNormGradient exact_norm_backward(const Bits& dx, const std::vector<float>& dw,
                                             const Bits& dy, const Bits& x, const Bits& w,
                                             bool accumulate) {
  const size_t width = w.size();
  ExactNormGradient g{std::vector<Exact>(x.size()), std::vector<Exact>(width)};
  for (size_t i = 0; i < width; ++i) g.dw[i] = {dw[i], std::abs(dw[i])};
  for (size_t row = 0; row < x.size() / width; ++row) {
    const size_t at = row * width;
    const double r = exact_inverse_rms(&x[at], static_cast<int64_t>(width));
    double mean = 0, size = 0;
    for (size_t i = 0; i < width; ++i) {
      const double term = double(to_float(dy[at + i])) * to_float(w[i]) * to_float(x[at + i]) * r;
      mean += term / double(width), size += std::abs(term) / double(width);
      const double share = double(to_float(dy[at + i])) * to_float(x[at + i]) * r;
      g.dw[i].value += share, g.dw[i].magnitude += std::abs(share);
    }
    for (size_t i = 0; i < width; ++i) {
      const double gw = double(to_float(dy[at + i])) * to_float(w[i]);
      const double normed = to_float(x[at + i]) * r, old = accumulate ? to_float(dx[at + i]) : 0;
      g.dx[at + i] = {old + r * (gw - normed * mean),
                      std::abs(old) + r * (std::abs(gw) + std::abs(normed) * size)};
    }
  }
  return g;
}

inline void check_norm_backward(int64_t rows, int64_t width, bool accumulate) {
  current_case = "rms_norm_backward [" + std::to_string(rows) + ", " + std::to_string(width) +
                 "] accumulate " + std::to_string(accumulate);
  const Bits x = random_bf16(rows * width, 2.0f), dy = random_bf16(rows * width, 1.0f);
  const Bits old = random_bf16(rows * width, 1.0f), w = random_bf16(width, 0.3f, 1.0f);
  const std::vector<float> dw = random_floats(width);
  const NormGradient g = run_norm_backward(old, dw, dy, x, w, accumulate);
  const ExactNormGradient exact = exact_norm_backward(old, dw, dy, x, w, accumulate);
  expect_close("dx", g.dx, exact.dx, width);
  expect_close("dw", g.dw, exact.dw, width);
  for (const int64_t shift : {0, 1}) {
    const NormGradient again = run_norm_backward(old, dw, dy, x, w, accumulate, shift);
    expect_bits(shift == 0 ? "dx again" : "dx off alignment", again.dx, g.dx, width);
    expect_bits(shift == 0 ? "dw again" : "dw off alignment", again.dw, g.dw, width);
  }
  if (!accumulate) {
    const NormGradient same = run_norm_backward(old, dw, dy, x, w, false, 0, true);
    expect_bits("dx in place of dy", same.dx, g.dx, width);
    expect_bits("dw in place of dy", same.dw, g.dw, width);
  }
  const int64_t row = rows / 2;
  const NormGradient alone =
      run_norm_backward(take_rows(old, row, 1, width), dw, take_rows(dy, row, 1, width),
                        take_rows(x, row, 1, width), w, accumulate);
  expect_bits("row alone: dx", alone.dx, take_rows(g.dx, row, 1, width), width);
}

}  // namespace slimexx::kernels::testing

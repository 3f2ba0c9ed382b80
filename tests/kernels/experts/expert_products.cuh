// Checks of grouped products: values against the host's sums in double, and the bits of each expert
// computed alone.
#pragma once
#include <string>
#include <vector>

#include "slimexx/kernels/gemm.h"
#include "slimexx/kernels/rows.h"
#include "tests/kernels/experts/grouped_case.cuh"

namespace slimexx::kernels::testing {

// Allowed error of one fp32 chain of the tensor cores, relative to the sum of its terms'
// magnitudes.
inline constexpr double kChainSlack = 0x1p-16;

inline std::vector<double> widen(const Bits& bits) {
  std::vector<double> wide;
  for (const uint16_t b : bits) wide.push_back(to_float(b));
  return wide;
}

// Adds factor * row[i] to sums[i].
inline void add_row(Exact* sums, double factor, const double* row, int64_t width) {
  for (int64_t i = 0; i < width; ++i) {
    sums[i].value += factor * row[i];
    sums[i].magnitude += std::abs(factor * row[i]);
  }
}

// The products of a case in double.
struct GroupedReference {
  std::vector<Exact> y, dx, dw;

  explicit GroupedReference(const GroupedOperands& o) {
    const int64_t n = o.of.n, k = o.of.k;
    const std::vector<double> x = widen(o.x.get()), w = widen(o.w.get()), dy = widen(o.dy.get());
    y.resize(static_cast<size_t>(o.of.rows * n));
    dx.resize(static_cast<size_t>(o.of.rows * k));
    dw.resize(static_cast<size_t>(o.of.experts * n * k));
    for (int64_t e = 0; e < o.of.experts; ++e)
      for (int64_t r = o.host_offsets[e]; r < o.host_offsets[e + 1]; ++r)
        for (int64_t i = 0; i < n; ++i) {
          const double* weights = w.data() + (e * n + i) * k;
          Exact& sum = y[r * n + i];
          for (int64_t j = 0; j < k; ++j) {
            const double term = x[r * k + j] * weights[j];
            sum.value += term;
            sum.magnitude += std::abs(term);
          }
          add_row(dx.data() + r * k, dy[r * n + i], weights, k);
          add_row(dw.data() + (e * n + i) * k, dy[r * n + i], x.data() + r * k, k);
        }
  }
};

// The rows of `all` that belong to experts. Checks that the rows after them were not written.
inline Bits take_written(const char* what, const Bits& all, int64_t rows, int64_t width) {
  const Bits behind(all.begin() + rows * width, all.end());
  expect_bits((std::string(what) + " behind the last row").c_str(), behind,
              Bits(behind.size(), 0xffff), width);
  return {all.begin(), all.begin() + rows * width};
}

// Computes each expert's rows alone: by the products of gemm.h, and as a group with one expert.
inline void check_experts_alone(const GroupedOperands& o, const Bits& y, const Bits& dx,
                                const std::vector<float>& dw) {
  const int64_t n = o.of.n, k = o.of.k;
  for (int64_t e = 0; e < o.of.experts; ++e) {
    const int64_t begin = o.host_offsets[e], count = o.host_offsets[e + 1] - begin;
    if (count == 0) continue;
    const std::string expert = " of expert " + std::to_string(e);
    const Array<int32_t> offsets(std::vector<int32_t>{0, static_cast<int32_t>(count)});
    const Bf16Array own_y(count * n), own_dx(count * k);
    const FloatArray own_dw(n * k);
    expect_no_fault(launch_gemm({.x = o.x.data() + begin * k,
                                 .w = o.w.data() + e * n * k,
                                 .y = own_y.data(),
                                 .m = count,
                                 .n = n,
                                 .k = k},
                                nullptr));
    GroupedGemmArgs input = o.input_gradient(own_dx.data());
    GroupedWeightGradArgs weight = o.weight_gradient(own_dw.data(), false);
    input.rows = weight.rows = {offsets.data(), 1, count};
    input.x = weight.dy = o.dy.data() + begin * n;
    input.w = o.w.data() + e * n * k;
    weight.x = o.x.data() + begin * k;
    expect_no_fault(launch_grouped_input_grad(input, nullptr));
    expect_no_fault(launch_grouped_weight_grad(weight, nullptr));
    SLX_CUDA(cudaDeviceSynchronize());
    expect_bits(("y" + expert).c_str(), take_rows(y, begin, count, n), own_y.get(), n);
    expect_bits(("dx" + expert).c_str(), take_rows(dx, begin, count, k), own_dx.get(), k);
    expect_bits(("dw" + expert).c_str(), take_rows(dw, e * n, n, k), own_dw.get(), k);
  }
}

// The expected bits: launch_grouped_gemm followed by swiglu_forward.
inline void check_fused_swiglu(const GroupedOperands& o, const Bits& y) {
  const int64_t rows = o.of.rows, width = o.of.n / 2;
  if (!fuses_grouped_swiglu(o.of.n, o.of.k)) return;
  const Bf16Array expected(rows * width), gate_up(y);
  expect_no_fault(launch_grouped_gemm_swiglu(o.forward(o.h.data()), nullptr));
  if (rows > 0)
    expect_status("swiglu_forward",
                  swiglu_forward(expected.data(), gate_up.data(), rows, width, nullptr),
                  cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("h", take_written("h", o.h.get(), rows, width), expected.get(), width);
}

// An earlier gradient is added to the finished sum, with one rounding.
inline void check_accumulation(const GroupedOperands& o, const std::vector<float>& dw) {
  std::vector<float> sums = random_floats(static_cast<int64_t>(dw.size()));
  const FloatArray added(sums);
  expect_no_fault(launch_grouped_weight_grad(o.weight_gradient(added.data(), true), nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += dw[i];
  expect_bits("dw added to another", added.get(), sums, o.of.k);
}

inline void check_products(const GroupedOperands& o, const GroupedReference& exact) {
  const GroupedCase& c = o.of;
  current_case = describe(c) + ", room for " + std::to_string(o.room) + " more";
  current_seed = c.seed;
  const int64_t n = c.n, k = c.k;
  const auto run = [&](const Bf16Array& y, const Bf16Array& dx, const FloatArray& dw) {
    expect_no_fault(launch_grouped_gemm(o.forward(y.data()), nullptr));
    expect_no_fault(launch_grouped_input_grad(o.input_gradient(dx.data()), nullptr));
    expect_no_fault(launch_grouped_weight_grad(o.weight_gradient(dw.data(), false), nullptr));
    SLX_CUDA(cudaDeviceSynchronize());
  };
  run(o.y, o.dx, o.dw);
  const Bits y = take_written("y", o.y.get(), c.rows, n),
             dx = take_written("dx", o.dx.get(), c.rows, k);
  const std::vector<float> dw = o.dw.get();
  expect_close("y", y, exact.y, n, kChainSlack);
  expect_close("dx", dx, exact.dx, k, kChainSlack);
  expect_close("dw", dw, exact.dw, k, kChainSlack);
  const Bf16Array again_y((c.rows + o.room) * n), again_dx((c.rows + o.room) * k);
  const FloatArray again_dw(c.experts * n * k);
  run(again_y, again_dx, again_dw);
  expect_bits("y again", again_y.get(), o.y.get(), n);
  expect_bits("dx again", again_dx.get(), o.dx.get(), k);
  expect_bits("dw again", again_dw.get(), dw, k);
  check_experts_alone(o, y, dx, dw);
  check_fused_swiglu(o, y);
  check_accumulation(o, dw);
}

inline void check_products(const GroupedCase& c) {
  const GroupedOperands exact_room(c), more_room(c, 150);
  const GroupedReference exact(exact_room);
  check_products(exact_room, exact);
  check_products(more_room, exact);
}

// A single token: all experts read its row, and each has at most one routed row. A shared expert
// may follow the routed ones, and a second product may follow the first.
inline void check_one_token(const GroupedCase& c) {
  current_case = "one token, " + describe(c);
  current_seed = c.seed;
  const GroupedOperands o(c);
  const int64_t n = c.n, k = c.k, rows = c.rows;
  const Bf16Array shared_w(n * k), copies((rows + 1) * k), y((rows + 1) * n), h((rows + 1) * n / 2),
      expected((rows + 1) * n), expected_h((rows + 1) * n / 2);
  fill(shared_w, n * k, c.seed + 3, 1.0f / std::sqrt(static_cast<float>(k)));
  for (int64_t r = 0; r <= rows; ++r)
    SLX_CUDA(cudaMemcpy(copies.data() + r * k, o.x.data(), static_cast<size_t>(k) * 2,
                        cudaMemcpyDeviceToDevice));
  GroupedGemmArgs each = o.forward(expected.data());
  each.x = copies.data();
  expect_no_fault(launch_grouped_gemm(each, nullptr));
  expect_no_fault(launch_gemm({.x = o.x.data(),
                               .w = shared_w.data(),
                               .y = expected.data() + rows * n,
                               .m = 1,
                               .n = n,
                               .k = k},
                              nullptr));
  const bool is_fused = fuses_grouped_swiglu(n, k);
  if (is_fused)
    expect_status("swiglu_forward",
                  swiglu_forward(expected_h.data(), expected.data(), rows + 1, n / 2, nullptr),
                  cudaSuccess);
  GroupedGemmArgs one = o.forward(o.y.data());
  one.one_x_row = true;
  expect_no_fault(launch_grouped_gemm(one, nullptr));
  one.shared_w = shared_w.data();
  one.rows.rows = rows + 1;
  one.y = y.data();
  one.follows_product = true;
  expect_no_fault(launch_grouped_gemm(one, nullptr));
  one.y = h.data();
  if (is_fused) expect_no_fault(launch_grouped_gemm_swiglu(one, nullptr));
  SLX_CUDA(cudaDeviceSynchronize());
  const Bits all = expected.get();
  expect_bits("y", o.y.get(), take_rows(all, 0, rows, n), n);
  expect_bits("y with a shared expert", y.get(), all, n);
  if (is_fused) expect_bits("h with a shared expert", h.get(), expected_h.get(), n / 2);
}

}  // namespace slimexx::kernels::testing

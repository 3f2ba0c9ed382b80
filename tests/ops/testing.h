// Shared by the tests of the ops: comparisons that print the place and the values, and a sweep over
// instruction sets and thread counts.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>
#include <string>

#include <bit>
#include <cmath>
#include <vector>

#include "ops/array.h"
#include "ops/cpu/isa/isa.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops::testing {

// One dimension of bf16 as f32.
inline Array widened(const Array& bf16) {
  Array out({bf16.size()});
  for (int64_t i = 0; i < out.size(); ++i)
    out[i] = tensor::bf16_to_f32(bf16.view().data<uint16_t>()[i]);
  return out;
}

// Element (i, j, ...) of a strided view by flat index.
inline float at(const tensor::Tensor& x, int64_t flat) {
  int64_t offset = 0;
  for (int d = x.num_dims() - 1; d >= 0; --d) {
    offset += flat % x.dim(d) * x.stride(d);
    flat /= x.dim(d);
  }
  return x.f32()[offset];
}

inline std::string coordinates(const tensor::Tensor& x, int64_t flat) {
  std::string text;
  for (int d = x.num_dims() - 1; d >= 0; --d) {
    text = (d ? ", " : "") + std::to_string(flat % x.dim(d)) + text;
    flat /= x.dim(d);
  }
  return "[" + text + "]";
}

inline ::testing::AssertionResult same_bits(const tensor::Tensor& a, const tensor::Tensor& b) {
  if (a.num_elements() != b.num_elements())
    return ::testing::AssertionFailure() << a.shape_text() << " against " << b.shape_text();
  for (int64_t i = 0; i < a.num_elements(); ++i)
    if (std::bit_cast<uint32_t>(at(a, i)) != std::bit_cast<uint32_t>(at(b, i)))
      return ::testing::AssertionFailure() << "at " << coordinates(a, i) << ": " << std::hexfloat
                                           << at(a, i) << " against " << at(b, i);
  return ::testing::AssertionSuccess();
}

// |a - reference| <= absolute + relative * |reference|, element by element.
inline ::testing::AssertionResult close(const tensor::Tensor& a,
                                        const std::vector<double>& reference, double relative,
                                        double absolute) {
  if (a.num_elements() != static_cast<int64_t>(reference.size()))
    return ::testing::AssertionFailure()
           << a.shape_text() << " against " << reference.size() << " elements";
  for (int64_t i = 0; i < a.num_elements(); ++i) {
    const double x = at(a, i), r = reference[static_cast<size_t>(i)];
    if (!(std::abs(x - r) <= absolute + relative * std::abs(r)) && x != r)
      return ::testing::AssertionFailure() << "at " << coordinates(a, i) << ": " << x
                                           << ", expected " << r << ", off by " << std::abs(x - r);
  }
  return ::testing::AssertionSuccess();
}

inline std::vector<double> doubles(const tensor::Tensor& x) {
  std::vector<double> values(static_cast<size_t>(x.num_elements()));
  for (int64_t i = 0; i < x.num_elements(); ++i) values[static_cast<size_t>(i)] = at(x, i);
  return values;
}

// d sum(weights * f(x)) / dx by central differences; f in double.
template <class F>
std::vector<double> numeric_gradient(std::vector<double> x, const std::vector<double>& weights,
                                     F&& f, double step = 1e-5) {
  const auto objective = [&] {
    const std::vector<double> y = f(x);
    double sum = 0.0;
    for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const double saved = x[i];
    x[i] = saved + step;
    const double up = objective();
    x[i] = saved - step;
    const double down = objective();
    x[i] = saved;
    gradient[i] = (up - down) / (2.0 * step);
  }
  return gradient;
}

// Runs every test of a suite once per instruction set that this CPU supports.
class OpsTest : public ::testing::TestWithParam<const cpu::KernelTable*> {
 protected:
  void SetUp() override { cpu::use_kernels(*GetParam()); }
  void TearDown() override {
    cpu::use_kernels(*cpu::available_kernels().back());
    set_num_threads(default_threads_);
  }
  const int default_threads_ = num_threads();
  tensor::Arena arena_{tensor::Device{}, 0, "test"};  // the CPU's ops need none
  const Context ctx_ = compute_context(arena_);
};

#define SLX_OPS_SUITE(suite)                                                     \
  class suite : public ::slimexx::ops::testing::OpsTest {};                      \
  INSTANTIATE_TEST_SUITE_P(                                                      \
      Isa, suite, ::testing::ValuesIn(::slimexx::ops::cpu::available_kernels()), \
      [](const auto& param_info) { return std::string(param_info.param->name); })

// Runs `op`, which returns its results, with 1, 2 and 3 threads: the bits must agree.
template <class Op>
void expect_same_for_any_threads(Op&& op) {
  const int before = num_threads();
  set_num_threads(1);
  const std::vector<Array> expected = op();
  for (int threads : {2, 3}) {
    set_num_threads(threads);
    const std::vector<Array> got = op();
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(same_bits(got[i], expected[i]))
          << "result " << i << ", " << threads << " threads";
  }
  set_num_threads(before);
}

}  // namespace slimexx::ops::testing

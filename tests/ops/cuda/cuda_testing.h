// Helpers for device tests of ops: copy host arrays to the device and back, run an op on the
// compute stream with the scratch that it planned, and compare with the CPU's results.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>
#include <memory>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "ops/array.h"
#include "ops/testing.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops::testing {

inline tensor::Device test_device() { return {tensor::DeviceType::kCuda, 0}; }

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
    tensor::select_device(test_device());
  }
};

// The nearest bf16 values: CPU and device start from the same numbers.
inline Array rounded(const Array& a) {
  Array out = a.clone();
  for (int64_t i = 0; i < out.size(); ++i)
    out[i] = tensor::bf16_to_f32(tensor::f32_to_bf16(out[i]));
  return out;
}
inline Array random_bf16(std::initializer_list<int64_t> shape, uint64_t seed, double scale = 1.0,
                         double shift = 0.0) {
  return rounded(Array::random(shape, seed, scale, shift));
}

enum class Kept : uint8_t { kCompute, kAsIs };

// A device copy of a host array. f32 is converted to the compute dtype unless Kept::kAsIs; other
// dtypes stay. Undefined if default-constructed.
class OnDevice {
 public:
  OnDevice() = default;
  OnDevice(const Array& a, Kept kept = Kept::kCompute)  // NOLINT: used as the array it holds
      : like_(a) {
    if (!a.view().defined()) return;
    const bool as_is = kept == Kept::kAsIs || a.view().dtype() != DType::kF32;
    dtype_ = as_is ? a.view().dtype() : tensor::compute_dtype(test_device());
    buffer_ = std::make_shared<tensor::Buffer>(
        test_device(), std::max<int64_t>(1, a.size() * tensor::dtype_bytes(dtype_)), "test");
    write(a);
  }
  void write(const Array& a) {
    const DType from = a.view().dtype();
    std::vector<char> bytes(static_cast<size_t>(a.size() * tensor::dtype_bytes(dtype_)));
    if (from == dtype_) {
      std::copy_n(a.view().data<char>(), bytes.size(), bytes.data());
    } else {
      tensor::convert_elements(from, a.view().raw(), dtype_, bytes.data(), a.size());
    }
    tensor::upload(tensor::compute_stream(test_device()), view(), bytes.data());
  }
  // Copies back in the original shape, converted to the original dtype.
  Array back() const {
    Array out = like_.clone();
    if (dtype_ == out.view().dtype()) {
      tensor::download(tensor::compute_stream(test_device()), out.view().raw(), view());
      return out;
    }
    std::vector<char> bytes(static_cast<size_t>(out.size() * tensor::dtype_bytes(dtype_)));
    tensor::download(tensor::compute_stream(test_device()), bytes.data(), view());
    tensor::convert_elements(dtype_, bytes.data(), DType::kF32, out.view().raw(), out.size());
    return out;
  }
  tensor::Tensor view() const {
    if (!buffer_) return {};
    const tensor::Tensor& v = like_.view();
    switch (v.num_dims()) {
      case 1:
        return buffer_->view(dtype_, {v.dim(0)});
      case 2:
        return buffer_->view(dtype_, {v.dim(0), v.dim(1)});
      case 3:
        return buffer_->view(dtype_, {v.dim(0), v.dim(1), v.dim(2)});
      default:
        return buffer_->view(dtype_, {v.dim(0), v.dim(1), v.dim(2), v.dim(3)});
    }
  }
  operator tensor::Tensor() const { return view(); }  // NOLINT: used as a tensor

 private:
  Array like_;
  DType dtype_ = DType::kF32;
  std::shared_ptr<tensor::Buffer> buffer_;
};
inline OnDevice as_is(const Array& a) { return {a, Kept::kAsIs}; }
inline OnDevice integers_on_device(const std::vector<int32_t>& values) {
  return as_is(Array::integers(values));
}

// Calls `op(ctx)` twice: in a planning context, then on the device with exactly the planned
// scratch, filled with NaN. Waits for the device.
template <class Op>
void run_op(Op&& op) {
  tensor::Arena plan = tensor::Arena::for_planning(test_device(), "test");
  op(planning_context(plan));
  tensor::Arena arena(test_device(), plan.high_water_bytes(), "test");
  const Context ctx = compute_context(arena);
  {
    constexpr int64_t kMostPoison = 4 << 20;
    tensor::ArenaScope scope(arena);
    const int64_t bytes = std::min(plan.high_water_bytes(), kMostPoison);
    const std::vector<char> poison(static_cast<size_t>(bytes), '\xff');
    tensor::upload(ctx.stream, arena.allocate(DType::kU8, {bytes}), poison.data());
  }
  op(ctx);
  tensor::synchronize(ctx.stream);
}

// Expects `op` to fail with this code and with `text` in its message.
template <class Op>
void expect_error(Op&& op, ErrorCode code, const std::string& text, const std::string& what) {
  try {
    run_op(op);
    ADD_FAILURE() << what << ": no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << what << ": " << error.message();
    EXPECT_NE(error.message().find(text), std::string::npos) << what << ": " << error.message();
  }
}
// Expects a shape or alignment that no kernel supports (kernels' headers: cudaErrorInvalidValue).
template <class Op>
void expect_unserved(Op&& op, const std::string& what) {
  expect_error(op, ErrorCode::kRun, "cudaErrorInvalidValue", what);
}
// Expects an error that says that the device has this op only inside a fused op.
template <class Op>
void expect_missing(Op&& op, const std::string& what) {
  expect_error(op, ErrorCode::kEnvironment, "has no kernel of its own on CUDA", what);
}

// The spacing of bf16 numbers at x.
inline double bf16_ulp(double x) {
  return x == 0.0 ? 0.0 : std::ldexp(1.0, std::ilogb(std::abs(x)) - 7);
}

// For values computed in f32 and rounded once: each within one bf16 ulp of the CPU's value, plus
// `absolute` for cancellation.
inline ::testing::AssertionResult within_ulp(const Array& got, const Array& expected,
                                             double absolute = 1e-6) {
  if (got.size() != expected.size()) return ::testing::AssertionFailure() << "sizes differ";
  for (int64_t i = 0; i < got.size(); ++i) {
    const double g = got[i], e = expected[i];
    if (!(std::abs(g - e) <= bf16_ulp(e) + absolute) && g != e)
      return ::testing::AssertionFailure()
             << "at " << coordinates(got, i) << ": device " << g << ", cpu " << e << ", off by "
             << std::abs(g - e) << " of " << bf16_ulp(e);
  }
  return ::testing::AssertionSuccess();
}

// || got - expected || <= relative || expected || + absolute sqrt(n), over the whole tensor.
inline ::testing::AssertionResult close_by_norm(const Array& got, const Array& expected,
                                                double relative, double absolute = 0.0) {
  if (got.size() != expected.size()) return ::testing::AssertionFailure() << "sizes differ";
  double difference = 0.0, norm = 0.0, worst = -1.0;
  int64_t where = 0;
  for (int64_t i = 0; i < got.size(); ++i) {
    const double d = double{got[i]} - expected[i];
    difference += d * d;
    norm += double{expected[i]} * expected[i];
    if (!(std::abs(d) <= worst)) worst = std::abs(d), where = i;
  }
  const double allowed =
      relative * std::sqrt(norm) + absolute * std::sqrt(static_cast<double>(got.size()));
  if (std::sqrt(difference) <= allowed) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "norm of the difference " << std::sqrt(difference) << ", allowed " << allowed
         << ", norm " << std::sqrt(norm) << "; worst at " << coordinates(got, where) << ": device "
         << got[where] << ", cpu " << expected[where];
}

}  // namespace slimexx::ops::testing

// What every op does before it works: the operands' shapes, types and places (our own bugs:
// SLX_CHECK), and the choice of backend.
#pragma once
#include <initializer_list>

#include "slimexx/base/check.h"
#include "slimexx/ops/ops.h"

namespace slimexx::ops {

// True: run the CPU implementation. False: launch the kernel on stream.handle, or, on a planning
// stream, do nothing. The one place that knows which backends this build has; throws
// Error(kEnvironment) for one that is missing.
bool runs_on_cpu(const Stream& stream);

inline constexpr int64_t kAny = -1;

enum class Strides {
  kContiguous,
  kRows,  // the first dimension's stride is free, the rest is dense
};

// An operand of the op `op`: defined, of this dtype and shape (kAny: free), on the stream's device,
// with memory behind it.
void check_operand(const char* op, const char* name, const Stream& stream, const Tensor& x,
                   tensor::DType dtype, std::initializer_list<int64_t> shape,
                   Strides strides = Strides::kContiguous);

inline void check_f32(const char* op, const char* name, const Stream& stream, const Tensor& x,
                      std::initializer_list<int64_t> shape,
                      Strides strides = Strides::kContiguous) {
  check_operand(op, name, stream, x, tensor::DType::kF32, shape, strides);
}
inline void check_i32(const char* op, const char* name, const Stream& stream, const Tensor& x,
                      std::initializer_list<int64_t> shape) {
  check_operand(op, name, stream, x, tensor::DType::kI32, shape, Strides::kContiguous);
}
// Any shape: elementwise ops.
void check_dense(const char* op, const char* name, const Stream& stream, const Tensor& x);

}  // namespace slimexx::ops

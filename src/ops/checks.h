// What every op does before it works: the operands' shapes, types and places (our own bugs:
// SLX_CHECK), and the choice of backend.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "slimexx/base/check.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

struct RouterRule;

// True: run the CPU implementation. False: launch the kernel on stream.handle, or, on a planning
// ctx, do nothing. Throws Error(kEnvironment) for a backend that this build lacks.
bool runs_on_cpu(const Context& ctx);

// SLX_LAUNCH(op(...)) is what follows where runs_on_cpu is false: ops::cuda::op, unless the
// context is planning or the build has no CUDA. SLX_LAUNCH_SCRATCH calls it in planning too:
// the op takes its scratch, so that it is planned for, and returns (cuda/launch.h).
#ifdef SLX_WITH_CUDA
#define SLX_LAUNCH(call) (ctx.planning() ? void() : cuda::call)
#define SLX_LAUNCH_SCRATCH(call) (ctx.device().is_cpu() ? void() : cuda::call)
#else
#define SLX_LAUNCH(call) void()
#define SLX_LAUNCH_SCRATCH(call) void()
#endif

inline constexpr int64_t kAny = -1;

enum class Strides {
  kContiguous,
  kRows,  // the first dimension's stride is free, the rest is dense
};

// An operand of the op `op`: defined, of this dtype and shape (kAny: free), on the context's
// device, with memory behind it.
void check_operand(const char* op, const char* name, const Context& ctx, const Tensor& x,
                   tensor::DType dtype, std::initializer_list<int64_t> shape,
                   Strides strides = Strides::kContiguous);

inline void check_f32(const char* op, const char* name, const Context& ctx, const Tensor& x,
                      std::initializer_list<int64_t> shape,
                      Strides strides = Strides::kContiguous) {
  check_operand(op, name, ctx, x, tensor::DType::kF32, shape, strides);
}
// Weights, activations and their gradients.
inline void check_compute(const char* op, const char* name, const Context& ctx, const Tensor& x,
                          std::initializer_list<int64_t> shape,
                          Strides strides = Strides::kContiguous) {
  check_operand(op, name, ctx, x, tensor::compute_dtype(ctx.device()), shape, strides);
}
inline void check_i32(const char* op, const char* name, const Context& ctx, const Tensor& x,
                      std::initializer_list<int64_t> shape) {
  check_operand(op, name, ctx, x, tensor::DType::kI32, shape, Strides::kContiguous);
}
// The rule, and the operands of a router's choice by it.
void check_route(const char* op, const Context& ctx, const Tensor& ids, const Tensor& weights,
                 const Tensor& logits, const Tensor& bias, const RouterRule& rule);
// Any shape: elementwise ops.
void check_dense(const char* op, const char* name, const Context& ctx, const Tensor& x);

}  // namespace slimexx::ops

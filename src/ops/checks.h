// The first steps of every op: check the operands' shapes, dtypes and devices (a mismatch is a bug
// in this program: SLX_CHECK), and choose the backend.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "slimexx/base/check.h"
#include "slimexx/ops/context.h"

namespace slimexx::ops {

struct RouterRule;

// True: run the CPU implementation. False: launch the kernel on stream.handle, or do nothing if ctx
// is planning. Throws Error(kEnvironment) for a backend that this build lacks.
bool runs_on_cpu(const Context& ctx);

// If runs_on_cpu is false, use SLX_LAUNCH(op(...)): it calls ops::cuda::op, unless the context is
// planning or the build has no CUDA. SLX_LAUNCH_SCRATCH calls the op in planning too: the op
// allocates its scratch, so that the plan counts it, and returns (cuda/launch.h).
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

// Checks an operand of the op `op`: it is defined, has this dtype and shape (kAny: free), is on the
// context's device, and has memory.
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
// Checks a router's rule and the operands of its choice.
void check_route(const char* op, const Context& ctx, const Tensor& ids, const Tensor& weights,
                 const Tensor& logits, const Tensor& bias, const RouterRule& rule);
// Accepts any shape, for elementwise ops.
void check_dense(const char* op, const char* name, const Context& ctx, const Tensor& x);

}  // namespace slimexx::ops

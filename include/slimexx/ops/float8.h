// FP8 (e4m3) products: both operands are quantised, and only forward computes them (numerics N10).
//
// Weights have a scale per 64 rows and 128 columns, activations one per row and 128 columns.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"
#include "slimexx/ops/experts.h"
#include "slimexx/ops/linear.h"
#include "slimexx/tensor/float8.h"

namespace slimexx::ops {

inline constexpr int64_t kF8UnitRows = 64, kF8Columns = 128;

// x[T,K] (strided) as an FP8 product reads it: values [T,K] kF8E4M3 and scales f32 [K/128,T4]; T4
// is T rounded up to a multiple of 4. The scale of 128 columns is max(amax, 1e-10) / 448, or NaN if
// one of the values is NaN or infinite.
void quantise_rows(const Context& ctx, Tensor values, Tensor scales, Tensor x);

// The blocks of a weight: plain[R,K], rounded to bf16, is quantised. `rounded`, if it is defined,
// gets value x scale in the compute type; it may be `plain`.
struct QuantisedBlocks {
  Tensor plain = {}, values = {};  // [R,K] in the compute type and kF8E4M3
  Tensor rounded = {};             // [R,K] in the compute type, or undefined
  Tensor scales = {};              // f32 [R/64,K/128]
  Tensor units = {};               // i32 [B,2]: the units of 64 rows of each block; -1: none
  tensor::F8ScaleRule rule = tensor::F8ScaleRule::kPowerOfTwo;
  Tensor changed =
      {};  // [1] i64, or undefined: increased by the number of values whose bytes changed
};
void quantise_blocks(const Context& ctx, const QuantisedBlocks& blocks);

// (scratch) The forward products of matmul.h and experts.h call these functions for weights with
// FP8 values. On the CPU the functions compute plain products of the dequantised operands; on CUDA
// the chain of kernels/float8.h.
void fp8_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w);
// matmul_swiglu_forward without gate_up in memory. False: the device does not fuse this product,
// and nothing was done.
bool fp8_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& w);
// The scratch of an FP8 product of `num_rows` rows with w[N,K]; 0 if w is not FP8.
int64_t fp8_scratch_bytes(const Context& ctx, int64_t num_rows, const Linear& w);
// Like expert_matmul_forward without a shared expert.
void fp8_expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w,
                               const RoutedRows& routed, bool follows_product = false);
// expert_matmul_swiglu_forward without gate_up in memory. False: as for fp8_matmul_swiglu_forward.
bool fp8_expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x, const Linear& w,
                                      const RoutedRows& routed);

}  // namespace slimexx::ops

#include "slimexx/kernels/float8.h"

#include "slimexx/kernels/float8_experts.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {
namespace {

// Ops and kernels have the same layout.
static_assert(kF8UnitRows == kernels::kFp8UnitRows && kF8Columns == kernels::kFp8GroupColumns);

// Products of few rows start early, as in matmul.cpp.
constexpr int64_t kEarlyRows = 64;

kernels::Fp8GroupedGemmArgs expert_product(const Tensor& y, const Tensor& x_values,
                                           const Tensor& x_scales, const Linear& w,
                                           const RoutedRows& routed) {
  const bool bf16 = !x_scales.defined();
  return {.x = x_values.raw(),
          .x_scales = x_scales.f32(),
          .w = w.values.raw(),
          .w_scales = w.scales.f32(),
          .y = y.raw(),
          .rows = {.offsets = routed.offsets.i32(),
                   .experts = w.values.dim(0),
                   .rows = routed.choices.dim(0),
                   .likely = routed.likely},
          .n = w.rows(),
          .k = w.columns(),
          .x_scale_stride = bf16 ? 0 : x_scales.dim(1),
          .x_is_bf16 = bf16,
          .x_stride = bf16 ? x_values.stride(0) : 0,
          .one_x_row = x_values.dim(0) == 1};
}

}  // namespace

bool fp8_matmul_quantises(const Tensor& x) {
  return kernels::fp8_gemm_quantises(x.dim(0), x.dim(1));
}

void quantise_rows(const Context& ctx, Tensor values, Tensor scales, Tensor x) {
  const kernels::QuantiseRowsArgs args{.x = x.raw(),
                                       .q = values.raw(),
                                       .scales = scales.f32(),
                                       .x_stride = x.stride(0),
                                       .scale_stride = scales.dim(1),
                                       .m = x.dim(0),
                                       .k = x.dim(1)};
  check_launch("quantise_rows", kernels::launch_quantise_rows(args, handle(ctx)), x, scales);
}

void quantise_blocks(const Context& ctx, const QuantisedBlocks& b) {
  const kernels::QuantiseBlocksArgs args{.w = b.plain.raw(),
                                         .rounded = b.rounded.raw(),
                                         .q = b.values.raw(),
                                         .scales = b.scales.f32(),
                                         .units = b.units.i32(),
                                         .num_blocks = b.units.dim(0),
                                         .changed = b.changed.data<int64_t>(),
                                         .rows = b.plain.dim(0),
                                         .k = b.plain.dim(1),
                                         .rule = b.rule};
  check_launch("quantise_blocks", kernels::launch_quantise_blocks(args, handle(ctx)), b.plain,
               b.scales);
}

namespace {

kernels::Fp8GemmArgs product(const Tensor& y, const Tensor& x_values, const Tensor& x_scales,
                             const Linear& w) {
  const bool f32 = y.dtype() == tensor::DType::kF32, bf16 = !x_scales.defined();
  return {.x = x_values.raw(),
          .x_scales = x_scales.f32(),
          .w = w.values.raw(),
          .w_scales = w.scales.f32(),
          .bias = w.bias.raw(),
          .y = y.raw(),
          .m = x_values.dim(0),
          .n = w.rows(),
          .k = w.columns(),
          .x_scale_stride = bf16 ? 0 : x_scales.dim(1),
          .w_stride = w.values.stride(0),
          .w_scale_stride = w.scales.stride(0),
          .y_stride = y.stride(0),
          .output = f32 ? kernels::GemmOutput::kF32 : kernels::GemmOutput::kBf16,
          .x_is_bf16 = bf16,
          .x_stride = bf16 ? x_values.stride(0) : 0,
          .overlap_previous = x_values.dim(0) <= kEarlyRows};
}

}  // namespace

void fp8_matmul_forward(const Context& ctx, Tensor y, Tensor x_values, Tensor x_scales,
                        const Linear& w) {
  check_launch("fp8_matmul_forward",
               kernels::launch_fp8_gemm(product(y, x_values, x_scales, w), handle(ctx)), x_values,
               w.values);
}

void fp8_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x_values, Tensor x_scales,
                               const Linear& w) {
  check_launch("fp8_matmul_swiglu_forward",
               kernels::launch_fp8_gemm_swiglu(product(h, x_values, x_scales, w), handle(ctx)),
               x_values, w.values);
}

void fp8_expert_matmul_forward(const Context& ctx, Tensor y, Tensor x_values, Tensor x_scales,
                               const Linear& w, const RoutedRows& routed, bool follows_product) {
  auto args = expert_product(y, x_values, x_scales, w, routed);
  args.follows_product = follows_product;
  check_launch("fp8_expert_matmul_forward", kernels::launch_fp8_grouped_gemm(args, handle(ctx)),
               x_values, w.values);
}

void fp8_expert_matmul_swiglu_forward(const Context& ctx, Tensor h, Tensor x_values,
                                      Tensor x_scales, const Linear& w, const RoutedRows& routed) {
  const auto args = expert_product(h, x_values, x_scales, w, routed);
  check_launch("fp8_expert_matmul_swiglu_forward",
               kernels::launch_fp8_grouped_gemm_swiglu(args, handle(ctx)), x_values, w.values);
}

}  // namespace slimexx::ops::cuda

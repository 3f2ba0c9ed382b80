#include "slimexx/ops/float8.h"

#include "ops/checks.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"

namespace slimexx::ops {
namespace {

using tensor::DType;

// The row stride of the scales for `num_rows` rows.
int64_t scale_stride(int64_t num_rows) { return (num_rows + 3) / 4 * 4; }

int64_t count_units(int64_t rows) { return (rows + kF8UnitRows - 1) / kF8UnitRows; }

// Checks w [N,K] or [E,N,K] with its scales.
void check_fp8(const char* op, const Context& ctx, const Linear& w,
               std::initializer_list<int64_t> shape, std::initializer_list<int64_t> scales) {
  check_operand(op, "w.values", ctx, w.values, DType::kF8E4M3, shape, Strides::kRows);
  check_f32(op, "w.scales", ctx, w.scales, scales, Strides::kRows);
  SLX_CHECK(w.columns() % kF8Columns == 0, "{}: {} columns are not a multiple of 128", op,
            w.columns());
}

// Whether the products on the device quantise this x themselves.
bool quantises_input([[maybe_unused]] const Tensor& x) {
#ifdef SLX_WITH_CUDA
  return cuda::fp8_matmul_quantises(x);
#else
  return false;
#endif
}

// x as the products on the device read it: as quantise_rows stores it, from the arena, or x itself
// without scales.
struct ProductInput {
  Tensor values, scales;
};
ProductInput prepare_input(const Context& ctx, Tensor x) {
  if (quantises_input(x)) return {x, {}};
  const ProductInput input{
      ctx.arena.allocate(DType::kF8E4M3, {x.dim(0), x.dim(1)}),
      ctx.arena.allocate(DType::kF32, {x.dim(1) / kF8Columns, scale_stride(x.dim(0))})};
  quantise_rows(ctx, input.values, input.scales, x);
  return input;
}

// On the CPU: x rounded to its quantised values, so that a plain product equals the quantised one.
Tensor round_rows(const Context& ctx, Tensor x) {
  const Tensor rounded = ctx.arena.allocate(x.dtype(), {x.dim(0), x.dim(1)});
  if (runs_on_cpu(ctx)) cpu::round_rows(rounded, x);
  return rounded;
}

// The plain values of w[N,K], in the compute type.
Tensor plain_values(const Context& ctx, const Linear& w) {
  if (w.weight.defined()) return w.weight;
  const Tensor plain =
      ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {w.rows(), w.columns()});
  if (runs_on_cpu(ctx)) cpu::dequantise_blocks(plain, w.values, w.scales);
  return plain;
}

// Whether the device computes h of w[2F,K] or w[E,2F,K] without gate_up in memory.
bool fuses_swiglu(const Context& ctx, const Linear& w) {
  constexpr int64_t kWholeTiles = 2 * kF8UnitRows;  // rows of gate, and of up
  return !ctx.device().is_cpu() && w.rows() % kWholeTiles == 0;
}

// Checks w[E,N,K].
void check_fp8_experts(const char* op, const Context& ctx, const Linear& w) {
  const int64_t experts = w.values.dim(0), rows = w.rows(), columns = w.columns();
  check_fp8(op, ctx, w, {experts, rows, columns},
            {experts, count_units(rows), columns / kF8Columns});
  if (ctx.device().is_cpu()) return;
  SLX_CHECK_EQ(w.values.stride(0), rows * columns);
  SLX_CHECK_EQ(w.scales.stride(0), w.scales.dim(1) * w.scales.dim(2));
}

}  // namespace

int64_t fp8_scratch_bytes(const Context& ctx, int64_t num_rows, const Linear& w) {
  if (!w.is_fp8()) return 0;
  tensor::Arena plan = tensor::Arena::for_planning(ctx.device(), "FP8 operands");
  const Context planning = planning_context(plan);
  const Tensor x(nullptr, tensor::compute_dtype(ctx.device()), ctx.device(),
                 {num_rows, w.columns()});
  if (ctx.device().is_cpu()) {
    plain_values(planning, w);
    round_rows(planning, x);
  } else {
    prepare_input(planning, x);
  }
  return plan.high_water_bytes();
}

void quantise_rows(const Context& ctx, Tensor values, Tensor scales, Tensor x) {
  constexpr const char* kOp = "quantise_rows";
  check_compute(kOp, "x", ctx, x, {kAny, kAny}, Strides::kRows);
  SLX_CHECK(x.dim(1) % kF8Columns == 0, "{}: {} columns are not a multiple of 128", kOp, x.dim(1));
  check_operand(kOp, "values", ctx, values, DType::kF8E4M3, {x.dim(0), x.dim(1)});
  check_f32(kOp, "scales", ctx, scales, {x.dim(1) / kF8Columns, scale_stride(x.dim(0))});
  if (runs_on_cpu(ctx)) return cpu::quantise_rows(values, scales, x);
  SLX_LAUNCH(quantise_rows(ctx, values, scales, x));
}

void quantise_blocks(const Context& ctx, const QuantisedBlocks& blocks) {
  constexpr const char* kOp = "quantise_blocks";
  check_compute(kOp, "plain", ctx, blocks.plain, {kAny, kAny});
  const int64_t rows = blocks.plain.dim(0), columns = blocks.plain.dim(1);
  check_operand(kOp, "values", ctx, blocks.values, DType::kF8E4M3, {rows, columns});
  if (blocks.rounded.defined()) check_compute(kOp, "rounded", ctx, blocks.rounded, {rows, columns});
  check_f32(kOp, "scales", ctx, blocks.scales, {count_units(rows), columns / kF8Columns});
  check_i32(kOp, "units", ctx, blocks.units, {kAny, 2});
  if (blocks.changed.defined())
    check_operand(kOp, "changed", ctx, blocks.changed, DType::kI64, {1});
  if (runs_on_cpu(ctx)) return cpu::quantise_blocks(blocks);
  SLX_LAUNCH(quantise_blocks(ctx, blocks));
}

void fp8_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w) {
  constexpr const char* kOp = "fp8_matmul_forward";
  const int64_t rows = w.rows(), columns = w.columns();
  check_fp8(kOp, ctx, w, {rows, columns}, {count_units(rows), columns / kF8Columns});
  check_compute(kOp, "x", ctx, x, {kAny, columns}, Strides::kRows);
  if (w.bias.defined()) check_compute(kOp, "bias", ctx, w.bias, {rows});
  if (x.dim(0) == 0) return;
  const tensor::ArenaScope scope(ctx.arena);
  if (!ctx.device().is_cpu()) {
    [[maybe_unused]] const ProductInput input = prepare_input(ctx, x);
    SLX_LAUNCH(fp8_matmul_forward(ctx, y, input.values, input.scales, w));
    return;
  }
  const Tensor plain = plain_values(ctx, w);
  matmul_forward(ctx, y, round_rows(ctx, x), {plain, w.bias});
}

bool fp8_matmul_swiglu_forward([[maybe_unused]] const Context& ctx, [[maybe_unused]] Tensor h,
                               [[maybe_unused]] Tensor x, [[maybe_unused]] const Linear& w) {
  if (!fuses_swiglu(ctx, w)) return false;
  constexpr const char* kOp = "fp8_matmul_swiglu_forward";
  check_fp8(kOp, ctx, w, {2 * h.dim(1), x.dim(1)},
            {count_units(w.rows()), w.columns() / kF8Columns});
  const tensor::ArenaScope scope(ctx.arena);
  [[maybe_unused]] const ProductInput input = prepare_input(ctx, x);
  SLX_LAUNCH(fp8_matmul_swiglu_forward(ctx, h, input.values, input.scales, w));
  return true;
}

void fp8_expert_matmul_forward(const Context& ctx, Tensor y, Tensor x, const Linear& w,
                               const RoutedRows& routed, [[maybe_unused]] bool follows_product) {
  constexpr const char* kOp = "fp8_expert_matmul_forward";
  const int64_t experts = w.values.dim(0), rows = w.rows(), columns = w.columns();
  check_fp8_experts(kOp, ctx, w);
  const tensor::ArenaScope scope(ctx.arena);
  if (!ctx.device().is_cpu()) {
    if (x.dim(0) == 0) return;
    [[maybe_unused]] const ProductInput input = prepare_input(ctx, x);
    SLX_LAUNCH(
        fp8_expert_matmul_forward(ctx, y, input.values, input.scales, w, routed, follows_product));
    return;
  }
  Tensor plain = w.weight;
  if (!plain.defined()) {
    plain = ctx.arena.allocate(y.dtype(), {experts, rows, columns});
    if (runs_on_cpu(ctx))
      cpu::dequantise_blocks(plain.reshaped({experts * rows, columns}),
                             w.values.reshaped({experts * rows, columns}),
                             w.scales.reshaped({experts * count_units(rows), w.scales.dim(2)}));
  }
  expert_matmul_forward(ctx, y, round_rows(ctx, x), {plain}, routed);
}

bool fp8_expert_matmul_swiglu_forward(const Context& ctx, [[maybe_unused]] Tensor h, Tensor x,
                                      const Linear& w, [[maybe_unused]] const RoutedRows& routed) {
  if (!fuses_swiglu(ctx, w)) return false;
  check_fp8_experts("fp8_expert_matmul_swiglu_forward", ctx, w);
  if (x.dim(0) == 0) return true;
  const tensor::ArenaScope scope(ctx.arena);
  [[maybe_unused]] const ProductInput input = prepare_input(ctx, x);
  SLX_LAUNCH(fp8_expert_matmul_swiglu_forward(ctx, h, input.values, input.scales, w, routed));
  return true;
}

}  // namespace slimexx::ops

#include "slimexx/model/blocks/dense_mlp.h"

#include <fmt/format.h>

#include "model/row_parallel.h"
#include "model/weights/parameter_list.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"

#include "slimexx/base/check.h"

namespace slimexx::model {
namespace {

int64_t count_rows(const DenseMlpSpec& spec, const RowCounts& rows) {
  return spec.is_replicated ? rows.own : rows.all;
}

// The batch for the products. A replicated block computes as with a single tp rank, so rows are
// neither gathered nor reduced.
Batch rows_of(const DenseMlpSpec& spec, const Batch& batch) {
  Batch seen = batch;
  if (spec.is_replicated) seen.tp_rows = {};
  return seen;
}

}  // namespace

DenseMlpSpec narrow(const DenseMlpSpec& spec, const dist::GridSizes& sizes) {
  check_tp_divides("intermediate_size", spec.intermediate_size, sizes.tp);
  DenseMlpSpec own = spec;
  if (spec.is_replicated) {
    own.leaves = sizes.tp;
  } else {
    own.intermediate_size /= sizes.tp;
  }
  return own;
}

DenseMlpParameters<ParameterId> declare(ParameterList& list, const DenseMlpSpec& s,
                                        const std::string& own, const std::string& hf) {
  return declare_dense_mlp(list, s, own + "mlp.", hf + "mlp.");
}

DenseMlpParameters<ParameterId> declare_dense_mlp(ParameterList& list, const DenseMlpSpec& s,
                                                  const std::string& own, const std::string& hf) {
  const int64_t f = s.intermediate_size;
  const std::vector<HfRows> gate_up =
      s.fused_gate_up
          ? std::vector<HfRows>{{hf + "gate_up_proj.weight", 2 * f}}
          : std::vector<HfRows>{{hf + "gate_proj.weight", f}, {hf + "up_proj.weight", f}};
  std::vector<Shard> gate_and_up, columns;
  if (!s.is_replicated) {
    gate_and_up = {{.axis = 0, .sections = {{f}, {f}}}};
    columns = {{.axis = 1}};
  }
  DenseMlpParameters<ParameterId> p;
  p.gate_up.weight = list.add_linear(own + "gate_up.weight", gate_up, s.hidden_size, gate_and_up);
  p.down.weight = list.add_linear(own + "down.weight", {{hf + "down_proj.weight", s.hidden_size}},
                                  f, columns, InitKind::kResidual);
  p.gate_up.bias =
      list.add_bias_if(s.bias, own + "gate_up.bias",
                       {{hf + "gate_proj.bias", f}, {hf + "up_proj.bias", f}}, gate_and_up);
  p.down.bias =
      list.add_bias_if(s.bias, own + "down.bias", {{hf + "down_proj.bias", s.hidden_size}});
  return p;
}

std::string describe(const DenseMlpSpec& s) {
  return fmt::format("dense MLP {}", s.intermediate_size);
}

double forward_flops(const DenseMlpSpec& s, int64_t num_tokens) {
  return 6 * static_cast<double>(num_tokens) * static_cast<double>(s.hidden_size) *
         static_cast<double>(s.intermediate_size);
}

void allocate_kept(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows, LayerKeep level,
                   DenseMlpTape& tape) {
  if (level >= LayerKeep::kGateUp)
    tape.gate_up = arena.allocate(tensor::compute_dtype(arena.device()),
                                  {count_rows(spec, rows), 2 * spec.intermediate_size});
}

void allocate_rest(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows, bool for_backward,
                   DenseMlpTape& tape) {
  if (tape.gate_up.defined()) return;
  const DType dtype = tensor::compute_dtype(arena.device());
  if (for_backward) {
    tape.gate_up = arena.allocate(dtype, {count_rows(spec, rows), 2 * spec.intermediate_size});
  } else {
    tape.h = arena.allocate(dtype, {count_rows(spec, rows), spec.intermediate_size});
  }
}

void keep_down_input(Arena& arena, const DenseMlpSpec& spec, const RowCounts& rows,
                     DenseMlpTape& tape) {
  tape.h = arena.allocate(tensor::compute_dtype(arena.device()),
                          {count_rows(spec, rows), spec.intermediate_size});
}

void project_up(const ops::Context& ctx, const DenseMlpSpec& spec,
                const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor x = gather_tp_rows(ctx, rows_of(spec, batch), normed);
  if (tape.gate_up.defined()) {
    ops::matmul_forward(ctx, tape.gate_up, x, w.gate_up);
  } else {
    ops::matmul_swiglu_forward(ctx, tape.h, x, w.gate_up);
  }
}

void project_down(const ops::Context& ctx, const DenseMlpSpec& spec,
                  const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                  Tensor down) {
  const tensor::ArenaScope scope(ctx.arena);
  Tensor h = tape.h;
  if (tape.gate_up.defined()) {
    if (!h.defined())
      h = ctx.arena.allocate(down.dtype(), {tape.gate_up.dim(0), spec.intermediate_size});
    ops::swiglu_forward(ctx, h, tape.gate_up);
  }
  row_parallel_forward(ctx, rows_of(spec, batch), down, h, w.down, spec.leaves);
}

void project_down(const ops::Context& ctx, const DenseMlpSpec& spec,
                  const DenseMlpParameters<Tensor>& w, const Batch& batch, const DenseMlpTape& tape,
                  const ops::ResidualNorm& residual) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor down =
      ctx.arena.allocate(residual.x.dtype(), {residual.x.dim(0), residual.x.dim(1)});
  project_down(ctx, spec, w, batch, tape, down);
  ops::add_rms_norm_forward(ctx, residual.y, residual.x_sum, residual.x, down, {}, residual.w,
                            residual.eps);
}

void backward(const ops::Context& ctx, const DenseMlpSpec& spec,
              const DenseMlpParameters<Tensor>& w, const DenseMlpParameters<Tensor>& g,
              const Batch& batch, const DenseMlpTape& tape, Tensor own_dout, Tensor normed,
              Tensor dnormed, bool accumulate, const RouterBalance&) {
  SLX_CHECK(!spec.is_replicated, "replicated MLPs have no backward");
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor dout = gather_tp_rows(ctx, batch, own_dout);
  const Tensor dh = ctx.arena.allocate(dout.dtype(), {dout.dim(0), spec.intermediate_size});
  ops::matmul_backward_input(ctx, dh, dout, w.down.weight, false);
  // In one pass d(gate_up) overwrites gate_up, and h overwrites dh if it was not kept.
  const Tensor dgate_up = tape.gate_up, h = tape.h.defined() ? tape.h : dh;
  ops::swiglu_backward(ctx, dgate_up, tape.h.defined() ? Tensor{} : h, dh, tape.gate_up);
  ops::matmul_backward_weight(ctx, g.down.weight, on_first_tp_rank(ctx, g.down.bias), dout, h,
                              accumulate);
  ops::matmul_backward_weight(ctx, g.gate_up.weight, g.gate_up.bias, dgate_up,
                              gather_tp_rows(ctx, batch, normed), accumulate);
  const Tensor partial = allocate_partial(ctx, batch, dnormed);
  ops::matmul_backward_input(ctx, partial, dgate_up, w.gate_up.weight, false);
  scatter_tp_sum(ctx, batch, dnormed, partial);
}

}  // namespace slimexx::model

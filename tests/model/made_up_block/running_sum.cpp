#include "model/made_up_block/running_sum.h"

#include <fmt/format.h>

#include "model/weights/parameter_list.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::model {

RunningSumSpec narrow(const RunningSumSpec& spec, const dist::GridSizes& sizes) {
  if (sizes.tp > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("running sums are not split over {} tensor-parallel ranks", sizes.tp),
                "use one", "parallel.tensor_model_parallel_size");
  if (sizes.cp > 1)
    throw Error(ErrorCode::kUsage,
                fmt::format("running sums do not go on over {} context-parallel ranks", sizes.cp),
                "use one", "parallel.context_parallel_size");
  return spec;
}

RunningSumParameters<ParameterId> declare(ParameterList& list, const RunningSumSpec& s,
                                          const std::string& own, const std::string& hf) {
  RunningSumParameters<ParameterId> p;
  p.v_weight = list.add_weight(own + "attention.v.weight",
                               {{hf + "self_attn.v_proj.weight", s.width}}, s.hidden_size, {});
  p.o_weight =
      list.add_weight(own + "attention.o.weight", {{hf + "self_attn.o_proj.weight", s.hidden_size}},
                      s.width, {}, InitKind::kResidual);
  return p;
}

void check_device_sizes(const RunningSumSpec&, tensor::Device device) {
  if (!device.is_cpu())
    throw Error(ErrorCode::kInput,
                fmt::format("running sums have no kernel on {}", tensor::to_string(device)),
                "use --device cpu", "layer_types");
}

std::string describe(const RunningSumSpec& s) {
  return fmt::format("running sum of {}, decay {}", s.width, s.decay);
}

double forward_flops(const RunningSumSpec& s, int64_t num_tokens) {
  return 4 * static_cast<double>(num_tokens) * static_cast<double>(s.hidden_size) *
         static_cast<double>(s.width);
}

void allocate_kept(Arena& arena, const RunningSumSpec& spec, const RowCounts& rows, LayerKeep level,
                   RunningSumTape& tape) {
  tape.sums = arena.allocate(DType::kF32, {rows.all, spec.width});
  if (level == LayerKeep::kAll) tape.values = arena.allocate(DType::kF32, {rows.all, spec.width});
}

void allocate_rest(Arena& arena, const RunningSumSpec& spec, const RowCounts& rows,
                   RunningSumTape& tape) {
  for (Tensor* t : {&tape.values, &tape.sums})
    if (!t->defined()) *t = arena.allocate(DType::kF32, {rows.all, spec.width});
}

void project_qkv(const ops::Context& ctx, const RunningSumSpec&,
                 const RunningSumParameters<Tensor>& w, const ops::RotaryTable&, const Batch&,
                 const LayerPages&, const RunningSumTape& tape, Tensor normed) {
  ops::matmul_forward(ctx, tape.values, normed, {w.v_weight});
}

void attend(const ops::Context& ctx, const RunningSumSpec& spec,
            const RunningSumParameters<Tensor>&, const ops::RotaryTable&, const Batch& batch,
            const LayerPages&, const RunningSumTape& tape) {
  if (ctx.planning()) return;
  const int64_t d = spec.width;
  const auto cu = batch.attention.cu_seqlens;
  for (size_t b = 0; b + 1 < cu.size(); ++b) {
    for (int64_t t = cu[b]; t < cu[b + 1]; ++t) {
      for (int64_t i = 0; i < d; ++i) {
        const float before = t == cu[b] ? 0 : tape.sums.f32()[(t - 1) * d + i];
        tape.sums.f32()[t * d + i] = spec.decay * before + tape.values.f32()[t * d + i];
      }
    }
  }
}

void project_out(const ops::Context& ctx, const RunningSumSpec&,
                 const RunningSumParameters<Tensor>& w, const Batch&, const RunningSumTape& tape,
                 Tensor o) {
  ops::matmul_forward(ctx, o, tape.sums, {w.o_weight});
}

void backward(const ops::Context& ctx, const RunningSumSpec& spec,
              const RunningSumParameters<Tensor>& w, const RunningSumParameters<Tensor>& g,
              const ops::RotaryTable&, const Batch& batch, const RunningSumTape& tape, Tensor dout,
              Tensor normed, Tensor dnormed, bool accumulate,
              const std::function<void()>& attention_next) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t d = spec.width;
  const Tensor dvalues = ctx.arena.allocate(DType::kF32, {dout.dim(0), d});
  ops::matmul_backward_weight(ctx, g.o_weight, {}, dout, tape.sums, accumulate);
  attention_next();
  ops::matmul_backward_input(ctx, dvalues, dout, w.o_weight, false);
  if (!ctx.planning()) {
    const auto cu = batch.attention.cu_seqlens;
    for (size_t b = 0; b + 1 < cu.size(); ++b)
      for (int64_t t = cu[b + 1] - 2; t >= cu[b]; --t)
        for (int64_t i = 0; i < d; ++i)
          dvalues.f32()[t * d + i] += spec.decay * dvalues.f32()[(t + 1) * d + i];
  }
  ops::matmul_backward_weight(ctx, g.v_weight, {}, dvalues, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, dvalues, w.v_weight, false);
}

}  // namespace slimexx::model

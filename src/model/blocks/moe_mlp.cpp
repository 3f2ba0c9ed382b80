#include "slimexx/model/blocks/moe_mlp.h"

#include <fmt/format.h>

#include "model/parameter_list.h"
#include "model/row_parallel.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::model {
namespace {

int64_t num_rows(const MoeMlpSpec& s, int64_t num_tokens) { return num_tokens * s.router.top_k; }

Tensor allocate_rows(Arena& arena, const MoeMlpSpec& s, int64_t num_tokens, int64_t width) {
  return arena.allocate(tensor::compute_dtype(arena.device()), {num_rows(s, num_tokens), width});
}

void allocate_router(Arena& arena, const MoeMlpSpec& s, int64_t num_tokens, MoeMlpTape& tape) {
  const int64_t experts = s.router.num_experts, k = s.router.top_k;
  tape.logits = arena.allocate(DType::kF32, {num_tokens, experts});
  tape.ids = arena.allocate(DType::kI32, {num_tokens, k});
  tape.weights = arena.allocate(DType::kF32, {num_tokens, k});
  tape.routed = {.offsets = arena.allocate(DType::kI32, {experts + 1}),
                 .choices = arena.allocate(DType::kI32, {num_tokens * k}),
                 .tokens = arena.allocate(DType::kI32, {num_tokens * k}),
                 .rows = arena.allocate(DType::kI32, {num_tokens, k})};
}

void route(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
           const MoeMlpTape& tape, Tensor normed) {
  ops::matmul_forward(ctx, tape.logits, normed, w.router_weight, {});
  ops::route_forward(ctx, tape.ids, tape.weights, tape.logits, w.correction_bias, spec.router);
  ops::sort_by_expert(ctx, tape.routed, tape.ids);
}

// Frequencies of experts are those of whole sequences: the rows of all tp ranks. The first of these
// ranks adds to the sums.
void balance_rows(const ops::Context& ctx, const MoeMlpSpec& spec, const Batch& batch,
                  const MoeMlpTape& tape, Tensor dlogits, const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor logits = gather_tp_rows(ctx, batch, tape.logits);
  const Tensor ids = gather_tp_rows(ctx, batch, tape.ids);
  const Tensor all = gather_tp_rows(ctx, batch, dlogits);
  // Allocated on every rank, as tp ranks plan alike.
  const Tensor unused = ctx.arena.allocate(DType::kI64, {balance.sums.dim(0)});
  ops::fill_zero(ctx, unused);
  const Tensor sums = ctx.groups.tp.rank() == 0 ? balance.sums : unused;
  const Tensor counts =
      ctx.arena.allocate(DType::kI32, {balance.sequences.count(), spec.router.num_experts});
  ops::balance_router(ctx, all, sums, counts, ids, logits, balance.sequences, spec.router,
                      balance.rule);
  if (batch.tp_rows.empty()) return;
  const dist::Range own = own_rows(batch, ctx.groups);
  ops::copy(ctx, dlogits, all.rows(own.begin, own.end));
}

// The gradients of the router's weights, and its part of dnormed, which is added to.
void router_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                     const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                     const Batch& batch, const MoeMlpTape& tape, Tensor dweights, Tensor normed,
                     Tensor dnormed, bool accumulate, const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor dlogits = ctx.arena.allocate(DType::kF32, {normed.dim(0), spec.router.num_experts});
  ops::route_backward(ctx, dlogits, dweights, tape.ids, tape.logits, spec.router);
  if (balance.sums.defined()) balance_rows(ctx, spec, batch, tape, dlogits, balance);
  Tensor rounded = dlogits;
  if (normed.dtype() != DType::kF32) {
    rounded = ctx.arena.allocate(normed.dtype(), {dlogits.dim(0), dlogits.dim(1)});
    ops::copy(ctx, rounded, dlogits);
  }
  ops::matmul_backward_weight(ctx, g.router_weight, {}, rounded, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, rounded, w.router_weight, true);
}

}  // namespace

MoeMlpSpec narrow(const MoeMlpSpec& spec, const dist::GridSizes& sizes) {
  MoeMlpSpec own = spec;
  own.intermediate_size /= sizes.etp;
  own.expert_ranks = sizes.ep;
  if (own.shared) own.shared = narrow(*own.shared, sizes);
  return own;
}

MoeMlpParameters<ParameterId> declare(ParameterList& list, const MoeMlpSpec& s,
                                      const std::string& own, const std::string& hf) {
  const int64_t experts = s.router.num_experts, f = s.intermediate_size, h = s.hidden_size;
  const std::string mlp = hf + "mlp.";
  ParameterInfo gate_up{.name = own + "mlp.experts.gate_up.weight", .shape = {experts, 2 * f, h}};
  ParameterInfo down{.name = own + "mlp.experts.down.weight", .shape = {experts, h, f}};
  for (int64_t e = 0; e < experts; ++e) {
    const std::string expert = fmt::format("{}experts.{}.", mlp, e);
    gate_up.parts.push_back(
        {.name = expert + "gate_proj.weight", .shape = {f, h}, .at = {e, 0, 0}});
    gate_up.parts.push_back({.name = expert + "up_proj.weight", .shape = {f, h}, .at = {e, f, 0}});
    down.parts.push_back({.name = expert + "down_proj.weight", .shape = {h, f}, .at = {e, 0, 0}});
  }
  const Shard by_expert{.axis = 0, .dim = GridDim::kExpert};
  gate_up.reduce_group = down.reduce_group = ReduceGroup::kExpert;
  gate_up.shards = {by_expert, {.axis = 1, .sections = {{f}, {f}}}};
  down.shards = {by_expert, {.axis = 2}};

  MoeMlpParameters<ParameterId> p;
  p.router_weight =
      list.add_weight(own + "mlp.router.weight", {{mlp + "gate.weight", experts}}, h, {});
  p.correction_bias = kNoParameter;
  if (s.has_correction_bias) {
    p.correction_bias =
        list.add({.name = own + "mlp.router.correction_bias",
                  .shape = {experts},
                  .decayed = false,
                  .trainable = false,
                  .moved_by_rule = true,
                  .dtype = DType::kF32,
                  .init = InitKind::kZeros,
                  .parts = {{.name = mlp + "gate.e_score_correction_bias", .shape = {experts}}}});
  }
  p.gate_up_weight = list.add(std::move(gate_up));
  p.down_weight = list.add(std::move(down));
  p.shared = {kNoParameter, kNoParameter, kNoParameter, kNoParameter};
  if (s.shared)
    p.shared =
        declare_dense_mlp(list, *s.shared, own + "mlp.shared_experts.", mlp + "shared_experts.");
  return p;
}

void check_device_sizes(const MoeMlpSpec& spec, tensor::Device device) {
  if (device.is_cpu()) return;
  const auto refuse = [device](const std::string& fault, const char* key) {
    throw Error(ErrorCode::kInput, fmt::format("{} on {}", fault, tensor::to_string(device)),
                "use --device cpu", key);
  };
  const ops::RouterRule& router = spec.router;
  if (router.num_experts > ops::kMostExperts)
    refuse(fmt::format("{} experts; the kernels serve up to {}", router.num_experts,
                       ops::kMostExperts),
           "num_experts");
  if (router.top_k > ops::kMostRoutedTo)
    refuse(fmt::format("{} experts of a token; the router serves up to {}", router.top_k,
                       ops::kMostRoutedTo),
           "num_experts_per_tok");
  if (router.num_groups > ops::kMostExpertGroups)
    refuse(fmt::format("{} groups of experts; the router serves up to {}", router.num_groups,
                       ops::kMostExpertGroups),
           "n_group");
  if (spec.intermediate_size % 8 != 0)
    refuse(fmt::format("experts of {} elements; their products serve multiples of 8",
                       spec.intermediate_size),
           "moe_intermediate_size");
  if (spec.hidden_size % 8 != 0)
    refuse(
        fmt::format("hidden size {}; products of experts serve multiples of 8", spec.hidden_size),
        "hidden_size");
}

double forward_flops(const MoeMlpSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens), h = static_cast<double>(s.hidden_size);
  const double experts =
      6 * n * static_cast<double>(s.router.top_k) * h * static_cast<double>(s.intermediate_size);
  const double router = 2 * n * h * static_cast<double>(s.router.num_experts);
  return experts + router + (s.shared ? forward_flops(*s.shared, num_tokens) : 0);
}

void allocate_kept(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts, LayerKeep level,
                   MoeMlpTape& tape) {
  const int64_t num_tokens = counts.own;
  if (level >= LayerKeep::kGateUp) {
    allocate_router(arena, spec, num_tokens, tape);
    tape.gate_up = allocate_rows(arena, spec, num_tokens, 2 * spec.intermediate_size);
  }
  if (spec.shared) allocate_kept(arena, *spec.shared, counts, level, tape.shared);
}

void allocate_rest(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts, bool for_backward,
                   MoeMlpTape& tape) {
  const int64_t num_tokens = counts.own;
  if (spec.shared) allocate_rest(arena, *spec.shared, counts, for_backward, tape.shared);
  if (tape.gate_up.defined()) return;
  allocate_router(arena, spec, num_tokens, tape);
  if (for_backward) {
    tape.gate_up = allocate_rows(arena, spec, num_tokens, 2 * spec.intermediate_size);
  } else {
    tape.h = allocate_rows(arena, spec, num_tokens, spec.intermediate_size);
  }
}

void keep_down_input(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts,
                     MoeMlpTape& tape) {
  tape.h = allocate_rows(arena, spec, counts.own, spec.intermediate_size);
  if (spec.shared) keep_down_input(arena, *spec.shared, counts, tape.shared);
}

void project_up(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
                const Batch& batch, const MoeMlpTape& tape, Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  route(ctx, spec, w, tape, normed);
  const Tensor x = allocate_rows(ctx.arena, spec, normed.dim(0), spec.hidden_size);
  ops::gather_rows(ctx, x, normed, tape.routed.tokens);
  if (tape.gate_up.defined()) {
    ops::expert_matmul_forward(ctx, tape.gate_up, x, w.gate_up_weight, tape.routed);
  } else {
    ops::expert_matmul_swiglu_forward(ctx, tape.h, x, w.gate_up_weight, tape.routed);
  }
  if (spec.shared) project_up(ctx, *spec.shared, w.shared, batch, tape.shared, normed);
}

void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  Tensor down) {
  const tensor::ArenaScope scope(ctx.arena);
  Tensor h = tape.h;
  if (tape.gate_up.defined()) {
    if (!h.defined()) h = allocate_rows(ctx.arena, spec, down.dim(0), spec.intermediate_size);
    ops::swiglu_forward(ctx, h, tape.gate_up);
  }
  const Tensor rows = allocate_rows(ctx.arena, spec, down.dim(0), spec.hidden_size);
  ops::expert_matmul_forward(ctx, rows, h, w.down_weight, tape.routed);
  Tensor shared;
  if (spec.shared) {
    shared = ctx.arena.allocate(down.dtype(), {down.dim(0), spec.hidden_size});
    project_down(ctx, *spec.shared, w.shared, batch, tape.shared, shared);
  }
  ops::combine_rows(ctx, down, rows, tape.weights, shared, tape.routed);
}

void backward(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
              const MoeMlpParameters<Tensor>& g, const Batch& batch, const MoeMlpTape& tape,
              Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t tokens = normed.dim(0);
  const Tensor wide = allocate_rows(ctx.arena, spec, tokens, spec.hidden_size);
  const Tensor dh = allocate_rows(ctx.arena, spec, tokens, spec.intermediate_size);
  Tensor h = tape.h;
  if (!h.defined()) {
    h = allocate_rows(ctx.arena, spec, tokens, spec.intermediate_size);
    ops::swiglu_forward(ctx, h, tape.gate_up);
  }
  const Tensor dweights = ctx.arena.allocate(DType::kF32, {tokens, spec.router.top_k});
  ops::gather_rows(ctx, wide, dout, tape.routed.tokens);
  ops::expert_matmul_backward_input(ctx, dh, wide, w.down_weight, tape.routed);
  ops::weigh_rows_backward(ctx, dweights, dh, h, tape.weights, tape.routed);
  ops::expert_matmul_backward_weight(ctx, g.down_weight, wide, h, tape.routed, accumulate);
  ops::swiglu_backward(ctx, tape.gate_up, {}, dh, tape.gate_up);
  ops::gather_rows(ctx, wide, normed, tape.routed.tokens);
  ops::expert_matmul_backward_weight(ctx, g.gate_up_weight, tape.gate_up, wide, tape.routed,
                                     accumulate);
  ops::expert_matmul_backward_input(ctx, wide, tape.gate_up, w.gate_up_weight, tape.routed);
  Tensor dshared;
  if (spec.shared) {
    dshared = ctx.arena.allocate(dnormed.dtype(), {tokens, spec.hidden_size});
    backward(ctx, *spec.shared, w.shared, g.shared, batch, tape.shared, dout, normed, dshared,
             accumulate);
  }
  ops::combine_rows(ctx, dnormed, wide, {}, dshared, tape.routed);
  router_backward(ctx, spec, w, g, batch, tape, dweights, normed, dnormed, accumulate, balance);
}

}  // namespace slimexx::model

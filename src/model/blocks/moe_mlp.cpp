#include "slimexx/model/blocks/moe_mlp.h"

#include <algorithm>
#include <optional>

#include "model/blocks/split_experts.h"
#include "slimexx/base/check.h"
#include "slimexx/ops/branch.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/float8.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::model {
namespace {

int64_t num_rows(const MoeMlpSpec& s, int64_t num_tokens) { return num_tokens * s.router.top_k; }

Tensor allocate_rows(Arena& arena, const MoeMlpSpec& s, int64_t num_tokens, int64_t width) {
  return arena.allocate(tensor::compute_dtype(arena.device()), {num_rows(s, num_tokens), width});
}

// Whether several ranks share the experts, so that routed rows are exchanged.
bool is_split(const MoeMlpSpec& s) { return s.expert_ranks > 1 || s.etp_ranks > 1; }

// Whether the expert products of a single token include the shared expert. Only in forward, when
// gate_up is not kept.
bool joins_shared(const MoeMlpSpec& s, int64_t num_tokens) {
  return num_tokens == 1 && s.can_join_shared && s.shared->leaves == 1 && !is_split(s);
}
// Up to this many tokens the router and the sorting leave most of the device idle, so the shared
// expert runs concurrently.
constexpr int64_t kMostBesideRouter = 512;
constexpr int64_t kArenaAlignment = 256;  // upper bound
bool runs_shared_beside_router(const MoeMlpSpec& s, int64_t num_tokens) {
  return s.shared && s.has_whole_shared && s.shared->leaves == 1 && !is_split(s) &&
         num_tokens <= kMostBesideRouter && !joins_shared(s, num_tokens);
}
Tensor shared_row_of(const Tensor& rows) { return rows.rows(rows.dim(0) - 1, rows.dim(0)); }

void allocate_router(Arena& arena, const MoeMlpSpec& s, int64_t num_tokens, MoeMlpTape& tape) {
  const int64_t experts = s.router.num_experts, k = s.router.top_k;
  tape.logits = arena.allocate(DType::kF32, {num_tokens, experts});
  tape.ids = arena.allocate(DType::kI32, {num_tokens, k});
  tape.weights = arena.allocate(DType::kF32, {num_tokens, k});
  const ExpertPlacement placement = s.placement();
  tape.copies = placement.has_redundant() ? arena.allocate(DType::kI32, {num_tokens, k}) : tape.ids;
  tape.routed = {.offsets = arena.allocate(DType::kI32, {placement.num_copies + 1}),
                 .choices = arena.allocate(DType::kI32, {num_tokens * k}),
                 .tokens = arena.allocate(DType::kI32, {num_tokens * k}),
                 .rows = arena.allocate(DType::kI32, {num_tokens, k})};
}

void route(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
           const MoeMlpTape& tape, Tensor normed) {
  ops::matmul_forward(ctx, tape.logits, normed, {w.router_weight});
  if (!spec.placement().has_redundant())
    return ops::route_and_sort(ctx, tape.routed, tape.ids, tape.weights, tape.logits,
                               w.correction_bias, spec.router);
  ops::route_forward(ctx, tape.ids, tape.weights, tape.logits, w.correction_bias, spec.router);
  ops::choose_copies(ctx, tape.copies, tape.ids, spec.placement().copies_for(ctx.groups.ep.rank()));
  ops::sort_by_expert(ctx, tape.routed, tape.copies);
}

// Writes dx[R,H] of the routed rows, and dweights[T,k].
void experts_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                      const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                      const MoeMlpTape& tape, Tensor dx, Tensor dweights, Tensor dout,
                      Tensor normed, bool accumulate) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor h = allocate_rows(ctx.arena, spec, normed.dim(0), spec.intermediate_size);
  ops::gather_rows(ctx, dx, dout, tape.routed.tokens);
  ops::expert_matmul_backward_input(ctx, h, dx, w.down.weight, tape.routed);
  ops::expert_swiglu_backward(ctx, dweights, h, tape.gate_up, h, tape.weights, tape.routed);
  ops::expert_matmul_backward_weight(ctx, g.down.weight, dx, h, tape.routed, accumulate);
  ops::gather_rows(ctx, dx, normed, tape.routed.tokens);
  ops::expert_matmul_backward_weight(ctx, g.gate_up.weight, tape.gate_up, dx, tape.routed,
                                     accumulate);
  ops::expert_matmul_backward_input(ctx, dx, tape.gate_up, w.gate_up.weight, tape.routed);
}

// Expert frequencies are counted over whole sequences; tp and cp ranks each hold a part, hence the
// all-reduce.
void balance_rows(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpTape& tape,
                  Tensor dlogits, const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor counts =
      ctx.arena.allocate(DType::kF32, {balance.sequences.count(), spec.router.num_experts});
  ops::count_choices(ctx, counts, balance.sums, tape.ids, balance.sequences);
  for (dist::Collective* ranks : {&ctx.groups.tp, &ctx.groups.cp})
    if (counts.num_elements() > 0)
      ranks->all_reduce_sum(ctx.stream, ctx.arena, counts, dist::SumOrder::kAny);
  ops::balance_router(ctx, dlogits, balance.sums, counts, tape.logits, balance.sequences,
                      spec.router, balance.rule);
}

// Computes the gradients of the router's weights, and adds the router's part to dnormed.
void router_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                     const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                     const MoeMlpTape& tape, Tensor dweights, Tensor normed, Tensor dnormed,
                     bool accumulate, const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor dlogits = ctx.arena.allocate(DType::kF32, {normed.dim(0), spec.router.num_experts});
  ops::route_backward(ctx, dlogits, dweights, tape.ids, tape.logits, spec.router);
  if (balance.sums.defined()) balance_rows(ctx, spec, tape, dlogits, balance);
  Tensor rounded = dlogits;
  if (normed.dtype() != DType::kF32) {
    rounded = ctx.arena.allocate(normed.dtype(), {dlogits.dim(0), dlogits.dim(1)});
    ops::copy(ctx, rounded, dlogits);
  }
  ops::matmul_backward_weight(ctx, g.router_weight, {}, rounded, normed, accumulate);
  ops::matmul_backward_input(ctx, dnormed, rounded, w.router_weight, true);
}

}  // namespace

void allocate_kept(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts, LayerKeep level,
                   MoeMlpTape& tape) {
  const int64_t num_tokens = counts.own;
  if (level >= LayerKeep::kGateUp) {
    allocate_router(arena, spec, num_tokens, tape);
    if (!is_split(spec))
      tape.gate_up = allocate_rows(arena, spec, num_tokens, 2 * spec.intermediate_size);
  }
  if (spec.shared) allocate_kept(arena, *spec.shared, counts, level, tape.shared);
}

void allocate_rest(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts, bool for_backward,
                   MoeMlpTape& tape) {
  const int64_t num_tokens = counts.own;
  if (spec.shared) allocate_rest(arena, *spec.shared, counts, for_backward, tape.shared);
  if (!tape.ids.defined()) allocate_router(arena, spec, num_tokens, tape);
  if (tape.gate_up.defined()) return;
  if (is_split(spec)) {
    if (!for_backward) tape.returned = allocate_rows(arena, spec, num_tokens, spec.hidden_size);
  } else if (for_backward) {
    tape.gate_up = allocate_rows(arena, spec, num_tokens, 2 * spec.intermediate_size);
  } else {
    const int64_t joined = joins_shared(spec, num_tokens) ? 1 : 0;
    tape.h = arena.allocate(tensor::compute_dtype(arena.device()),
                            {num_rows(spec, num_tokens) + joined, spec.intermediate_size});
    if (runs_shared_beside_router(spec, num_tokens))
      tape.shared_output = arena.allocate(tape.h.dtype(), {num_tokens, spec.hidden_size});
  }
}

void keep_down_input(Arena& arena, const MoeMlpSpec& spec, const RowCounts& counts,
                     MoeMlpTape& tape) {
  SLX_CHECK(!is_split(spec),
            "the output of experts on several ranks cannot be normed");  // in no model family
  tape.h = allocate_rows(arena, spec, counts.own, spec.intermediate_size);
  if (spec.shared) keep_down_input(arena, *spec.shared, counts, tape.shared);
}

void project_up(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
                const Batch& batch, const MoeMlpTape& tape, Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  const bool joined = joins_shared(spec, normed.dim(0)) && !tape.gate_up.defined();
  std::optional<ops::Branch> beside;
  if (tape.shared_output.defined()) {
    // Memory for gate_up, in case the product on this device is not fused with SwiGLU.
    const int64_t gate_up =
        normed.dim(0) * w.shared.gate_up.rows() * tensor::dtype_bytes(normed.dtype());
    const int64_t operands = std::max(ops::fp8_scratch_bytes(ctx, normed.dim(0), w.shared.gate_up),
                                      ops::fp8_scratch_bytes(ctx, normed.dim(0), w.shared.down));
    const int64_t bytes = gate_up + kArenaAlignment + operands;
    beside.emplace(ctx, ctx.arena.allocate(DType::kU8, {bytes}));
    project_up(beside->context(), *spec.shared, w.shared, batch, tape.shared, normed);
    project_down(beside->context(), *spec.shared, w.shared, batch, tape.shared, tape.shared_output);
  }
  route(ctx, spec, w, tape, normed);
  if (is_split(spec)) {
    if (!tape.returned.defined()) {
      // Recomputing for backward, which dispatches the rows itself: nothing to do.
    } else {
      run_split_experts(ctx, spec, w, tape, normed);
    }
  } else {
    Tensor x = normed;  // all experts of a single token read the same row
    if (normed.dim(0) != 1) {
      x = allocate_rows(ctx.arena, spec, normed.dim(0), spec.hidden_size);
      ops::gather_rows(ctx, x, normed, tape.routed.tokens);
    }
    if (tape.gate_up.defined()) {
      ops::expert_matmul_forward(ctx, tape.gate_up, x, w.gate_up, tape.routed);
    } else {
      ops::expert_matmul_swiglu_forward(ctx, tape.h, x, w.gate_up, tape.routed,
                                        joined ? w.shared.gate_up : ops::Linear{});
    }
  }
  if (beside) {
    beside->join();
  } else if (spec.shared && !joined) {
    project_up(ctx, *spec.shared, w.shared, batch, tape.shared, normed);
  }
}

namespace {

// The terms of the tokens' outputs, from the arena.
struct ExpertOutputs {
  Tensor rows;    // [R,H], before weighting
  Tensor shared;  // [T,H]; undefined without a shared expert
};
ExpertOutputs run_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                       const MoeMlpParameters<Tensor>& w, const Batch& batch,
                       const MoeMlpTape& tape) {
  const int64_t tokens = tape.ids.dim(0);
  const bool joined = joins_shared(spec, tokens) && !tape.gate_up.defined();
  ExpertOutputs out{tape.returned, tape.shared_output};
  if (!is_split(spec)) {
    Tensor h = tape.h;
    if (tape.gate_up.defined()) {
      if (!h.defined()) h = allocate_rows(ctx.arena, spec, tokens, spec.intermediate_size);
      ops::swiglu_forward(ctx, h, tape.gate_up);
    }
    const int64_t rows = num_rows(spec, tokens);
    const Tensor all = ctx.arena.allocate(h.dtype(), {h.dim(0), spec.hidden_size});
    ops::expert_matmul_forward(ctx, all, h, w.down, tape.routed,
                               joined ? w.shared.down : ops::Linear{},
                               /*follows_product=*/true);
    out.rows = all.rows(0, rows);
    if (joined) out.shared = shared_row_of(all);
  }
  if (spec.shared && !out.shared.defined()) {
    out.shared = ctx.arena.allocate(out.rows.dtype(), {tokens, spec.hidden_size});
    project_down(ctx, *spec.shared, w.shared, batch, tape.shared, out.shared);
  }
  return out;
}

}  // namespace

void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  Tensor down) {
  const tensor::ArenaScope scope(ctx.arena);
  const ExpertOutputs out = run_down(ctx, spec, w, batch, tape);
  ops::combine_rows(ctx, down, out.rows, tape.weights, out.shared, tape.routed);
}

void project_down(const ops::Context& ctx, const MoeMlpSpec& spec,
                  const MoeMlpParameters<Tensor>& w, const Batch& batch, const MoeMlpTape& tape,
                  const ops::ResidualNorm& residual) {
  const tensor::ArenaScope scope(ctx.arena);
  const ExpertOutputs out = run_down(ctx, spec, w, batch, tape);
  ops::combine_add_rms_norm(ctx, residual, out.rows, tape.weights, out.shared, tape.routed);
}

void backward(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpParameters<Tensor>& w,
              const MoeMlpParameters<Tensor>& g, const Batch& batch, const MoeMlpTape& tape,
              Tensor dout, Tensor normed, Tensor dnormed, bool accumulate,
              const RouterBalance& balance) {
  const tensor::ArenaScope scope(ctx.arena);
  const int64_t tokens = normed.dim(0);
  const Tensor wide = allocate_rows(ctx.arena, spec, tokens, spec.hidden_size);
  const Tensor dweights = ctx.arena.allocate(DType::kF32, {tokens, spec.router.top_k});
  if (is_split(spec)) {
    split_experts_backward(ctx, spec, w, g, tape, wide, dweights, dout, normed, accumulate);
  } else {
    experts_backward(ctx, spec, w, g, tape, wide, dweights, dout, normed, accumulate);
  }
  Tensor dshared;
  if (spec.shared) {
    dshared = ctx.arena.allocate(dnormed.dtype(), {tokens, spec.hidden_size});
    backward(ctx, *spec.shared, w.shared, g.shared, batch, tape.shared, dout, normed, dshared,
             accumulate);
  }
  ops::combine_rows(ctx, dnormed, wide, {}, dshared, tape.routed);
  router_backward(ctx, spec, w, g, tape, dweights, normed, dnormed, accumulate, balance);
}

}  // namespace slimexx::model

#include "model/blocks/split_experts.h"

#include "model/blocks/expert_dispatch.h"
#include "slimexx/base/check.h"
#include "slimexx/ops/peer_rows.h"

namespace slimexx::model {
namespace {

// Whether row counts stay on the device; in a planning context, whether they may.
bool leaves_counts_on_device(const ops::Context& ctx) {
  if (ctx.device().is_cpu() || ctx.groups.ep.size() == 1 || ctx.groups.etp.size() > 1) return false;
  return ctx.planning() || (ctx.groups.ep_memory != nullptr && ctx.most_ep_rows > 0);
}

// Buffers sized for the most rows that can arrive; the products stop at the actual count on the
// device.
struct UncountedRows {
  ops::PeerRuns runs;
  ops::RoutedRows received;
  int64_t most = 0;
};
UncountedRows allocate_uncounted(const ops::Context& ctx, const MoeMlpSpec& spec,
                                 const MoeMlpTape& tape) {
  const ExpertPlacement placement = spec.placement();
  const dist::Range held = placement.held_by(ctx.groups.ep.rank());
  const int64_t most = most_rows_of_ranks(ctx, placement, tape.copies);
  // Products read only the size of `order`, not its values.
  const Tensor order = ctx.arena.allocate(DType::kI32, {most});
  return {.runs = ops::allocate_peer_runs(ctx, held.begin, held.size()),
          .received = {.offsets = ctx.arena.allocate(DType::kI32, {held.size() + 1}),
                       .choices = order,
                       .tokens = order,
                       .rows = order.reshaped({most, 1}),
                       .likely = tape.copies.num_elements()},
          .most = most};
}

void run_uncounted_experts(const ops::Context& ctx, const MoeMlpSpec& spec,
                           const MoeMlpParameters<Tensor>& w, const MoeMlpTape& tape,
                           Tensor normed) {
  const tensor::ArenaScope scope(ctx.arena);
  const auto [runs, received, most] = allocate_uncounted(ctx, spec, tape);
  const Tensor rows = ctx.arena.allocate(normed.dtype(), {most, spec.hidden_size});
  const Tensor h = ctx.arena.allocate(normed.dtype(), {most, spec.intermediate_size});
  ops::show_rows(ctx, runs, received.offsets,
                 {.routed = tape.routed, .x = normed, .returned = tape.returned});
  ops::fetch_peer_rows(ctx, runs, rows);
  ops::expert_matmul_swiglu_forward(ctx, h, rows, w.gate_up, received);
  ops::expert_matmul_forward(ctx, rows, h, w.down, received, {}, /*follows_product=*/true);
  ops::return_peer_rows(ctx, runs, rows);
  ops::await_peer_rows(ctx);
}

void uncounted_experts_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                                const MoeMlpParameters<Tensor>& w,
                                const MoeMlpParameters<Tensor>& g, const MoeMlpTape& tape,
                                Tensor dx, Tensor dweights, Tensor dout, Tensor normed,
                                bool accumulate) {
  const tensor::ArenaScope scope(ctx.arena);
  const auto [runs, received, most] = allocate_uncounted(ctx, spec, tape);
  const auto allocate = [&ctx, &normed, rows = most](int64_t width) {
    return ctx.arena.allocate(normed.dtype(), {rows, width});
  };
  const Tensor x = allocate(spec.hidden_size), dy = allocate(spec.hidden_size);
  const Tensor gate_up = allocate(2 * spec.intermediate_size), h = allocate(spec.intermediate_size);
  const Tensor weights = ctx.arena.allocate(DType::kF32, {most});
  const Tensor own_dweights = ctx.arena.allocate(DType::kF32, {most});
  ops::show_rows(ctx, runs, received.offsets,
                 {.routed = tape.routed,
                  .x = normed,
                  .second = dout,
                  .returned = dx,
                  .values = tape.weights,
                  .returned_values = dweights});
  ops::fetch_peer_rows(ctx, runs, x);
  ops::fetch_peer_rows(ctx, runs, dy, true);
  ops::fetch_peer_values(ctx, runs, weights);
  ops::expert_matmul_forward(ctx, gate_up, x, w.gate_up, received);
  ops::expert_matmul_backward_input(ctx, h, dy, w.down.weight, received);
  ops::expert_swiglu_backward(ctx, own_dweights, h, gate_up, h, weights, received);
  ops::return_peer_values(ctx, runs, own_dweights);
  ops::expert_matmul_backward_weight(ctx, g.down.weight, dy, h, received, accumulate);
  ops::expert_matmul_backward_weight(ctx, g.gate_up.weight, gate_up, x, received, accumulate);
  ops::expert_matmul_backward_input(ctx, x, gate_up, w.gate_up.weight, received);
  ops::return_peer_rows(ctx, runs, x);
  ops::await_peer_rows(ctx);
}

// A planning context always takes the path that counts rows on the host. It needs more memory than
// the other path, except for the peer runs, which are added here.
ExpertDispatch count_rows(const ops::Context& ctx, const MoeMlpSpec& spec, const MoeMlpTape& tape) {
  ExpertDispatch dispatch = plan_dispatch(ctx, spec.placement(), tape.routed, tape.copies);
  if (leaves_counts_on_device(ctx)) {
    const dist::Range held = spec.placement().held_by(ctx.groups.ep.rank());
    ops::allocate_peer_runs(ctx, held.begin, held.size());
  }
  return dispatch;
}

// h[M,F]: gathers the columns of all etp ranks, into the arena. With one etp rank returns `own`.
Tensor gather_h(const ops::Context& ctx, const MoeMlpSpec& s, const ExpertDispatch& dispatch,
                Tensor own) {
  if (s.etp_ranks == 1) return own;
  const Tensor h = ctx.arena.allocate(own.dtype(), {own.dim(0), s.intermediate_size});
  gather_columns(ctx, dispatch, h, own);
  return h;
}

// dh[M,F/e]: this etp rank's columns of dy[M,H] times the down weights. Each etp rank holds W of
// their H rows and the same columns of dy, so the product is reduce-scattered over etp ranks.
void down_backward_input(const ops::Context& ctx, const MoeMlpSpec& spec,
                         const ExpertDispatch& dispatch, Tensor dh, Tensor dy, Tensor w) {
  if (spec.etp_ranks == 1)
    return ops::expert_matmul_backward_input(ctx, dh, dy, w, dispatch.routed);
  const tensor::ArenaScope scope(ctx.arena);
  const Tensor term = ctx.arena.allocate(dh.dtype(), {dh.dim(0), spec.intermediate_size});
  ops::expert_matmul_backward_input(ctx, term, dy, w, dispatch.routed);
  sum_columns(ctx, dispatch, dh, term);
}

}  // namespace

void run_split_experts(const ops::Context& ctx, const MoeMlpSpec& spec,
                       const MoeMlpParameters<Tensor>& w, const MoeMlpTape& tape, Tensor normed) {
  if (leaves_counts_on_device(ctx) && !ctx.planning())
    return run_uncounted_experts(ctx, spec, w, tape, normed);
  const tensor::ArenaScope scope(ctx.arena);
  const ExpertDispatch dispatch = count_rows(ctx, spec, tape);
  const int64_t num_received = dispatch.num_received(), etp = spec.etp_ranks;
  const Tensor rows = ctx.arena.allocate(normed.dtype(), {num_received, spec.hidden_size});
  const Tensor h = ctx.arena.allocate(normed.dtype(), {num_received, spec.intermediate_size / etp});
  dispatch_rows(ctx, dispatch, rows, normed, tape.routed);
  ops::expert_matmul_swiglu_forward(ctx, h, rows, w.gate_up, dispatch.routed);
  // The outputs reuse the memory of the inputs.
  const Tensor columns =
      rows.reshaped({num_received * etp, spec.hidden_size / etp}).rows(0, num_received);
  {
    const tensor::ArenaScope whole(ctx.arena);
    ops::expert_matmul_forward(ctx, columns, gather_h(ctx, spec, dispatch, h), w.down,
                               dispatch.routed, {}, /*follows_product=*/true);
  }
  return_columns(ctx, dispatch, tape.returned, columns);
}

void split_experts_backward(const ops::Context& ctx, const MoeMlpSpec& spec,
                            const MoeMlpParameters<Tensor>& w, const MoeMlpParameters<Tensor>& g,
                            const MoeMlpTape& tape, Tensor dx, Tensor dweights, Tensor dout,
                            Tensor normed, bool accumulate) {
  SLX_CHECK(!spec.placement().has_redundant(), "redundant experts have no backward");
  if (leaves_counts_on_device(ctx) && !ctx.planning())
    return uncounted_experts_backward(ctx, spec, w, g, tape, dx, dweights, dout, normed,
                                      accumulate);
  const tensor::ArenaScope scope(ctx.arena);
  const ExpertDispatch dispatch = count_rows(ctx, spec, tape);
  const ops::RoutedRows& routed = dispatch.routed;
  const auto allocate = [&](int64_t width) {
    return ctx.arena.allocate(normed.dtype(), {dispatch.num_received(), width});
  };
  const int64_t width = spec.intermediate_size / spec.etp_ranks;
  const Tensor x = allocate(spec.hidden_size), dy = allocate(spec.hidden_size / spec.etp_ranks);
  const Tensor gate_up = allocate(2 * width), h = allocate(width);
  const Tensor weights = ctx.arena.allocate(DType::kF32, {dispatch.num_received(), 1});
  const Tensor own_dweights = ctx.arena.allocate(DType::kF32, {dispatch.num_received(), 1});
  dispatch_rows(ctx, dispatch, x, normed, tape.routed);
  dispatch_columns(ctx, dispatch, dy, dout, tape.routed);
  dispatch_choices(ctx, dispatch, weights, tape.weights, tape.routed);
  ops::expert_matmul_forward(ctx, gate_up, x, w.gate_up, routed);
  down_backward_input(ctx, spec, dispatch, h, dy, w.down.weight);
  ops::expert_swiglu_backward(ctx, own_dweights, h, gate_up, h, weights, routed);
  {
    const tensor::ArenaScope whole(ctx.arena);
    ops::expert_matmul_backward_weight(ctx, g.down.weight, dy, gather_h(ctx, spec, dispatch, h),
                                       routed, accumulate);
  }
  ops::expert_matmul_backward_weight(ctx, g.gate_up.weight, gate_up, x, routed, accumulate);
  ops::expert_matmul_backward_input(ctx, x, gate_up, w.gate_up.weight, routed);
  return_rows(ctx, dispatch, dx, x);
  return_choices(ctx, dispatch, dweights, own_dweights, tape.routed);
}

}  // namespace slimexx::model

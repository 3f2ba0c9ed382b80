#include "model/blocks/expert_dispatch.h"

#include <algorithm>
#include <span>

#include "slimexx/base/check.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;
using tensor::Tensor;

// What plans have instead of counts: sums that they can work with.
void fill_planned_rows(int rank, int64_t sent, int64_t received, ExpertDispatch& dispatch) {
  const auto own = static_cast<size_t>(rank), next = (own + 1) % dispatch.send_rows.size();
  const int64_t stay = std::min(sent, received);
  dispatch.send_rows[own] = dispatch.receive_rows[own] = stay;
  dispatch.send_rows[next] = sent - stay;
  dispatch.receive_rows[next] = received - stay;
}

// Returns the number of rows that come.
int64_t count_rows(const ops::Context& ctx, const ExpertPlacement& placement, Tensor offsets,
                   ExpertDispatch& dispatch) {
  const int64_t own = ctx.groups.ep.rank(), ranks = ctx.groups.ep.size(), width = offsets.dim(0);
  std::vector<int32_t> by_rank(static_cast<size_t>(ranks * width));
  {
    const ArenaScope scope(ctx.arena);
    const Tensor all = ctx.arena.allocate(DType::kI32, {ranks * width});
    ctx.groups.ep.all_gather(ctx.stream, all, offsets);
    tensor::download(ctx.stream, by_rank.data(), all);
  }
  // The rows of the rank `from` for the copies of the rank `to`.
  const auto count = [&](int64_t from, int64_t to) {
    const int32_t* theirs = by_rank.data() + from * width;
    const dist::Range held = placement.held_by(to);
    return int64_t{theirs[held.end]} - theirs[held.begin];
  };
  int64_t received = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    dispatch.send_rows[r] = count(own, rank);
    dispatch.receive_rows[r] = count(rank, own);
    received += dispatch.receive_rows[r];
  }
  return received;
}

Tensor allocate_like(const ops::Context& ctx, int64_t num_rows, Tensor x) {
  return ctx.arena.allocate(x.dtype(), {num_rows, x.dim(1)});
}

}  // namespace

ExpertDispatch plan_dispatch(const ops::Context& ctx, const ExpertPlacement& placement,
                             const ops::RoutedRows& routed, Tensor copies) {
  const auto num_ranks = static_cast<size_t>(ctx.groups.ep.size());
  SLX_CHECK_EQ(placement.num_ranks, ctx.groups.ep.size());
  SLX_CHECK_EQ(placement.num_copies + 1, routed.offsets.dim(0));
  const dist::Range held = placement.held_by(ctx.groups.ep.rank());
  ExpertDispatch dispatch;
  dispatch.send_rows.assign(num_ranks, 0);
  dispatch.receive_rows.assign(num_ranks, 0);
  int64_t received = count_rows(ctx, placement, routed.offsets, dispatch);
  if (ctx.planning()) {
    const int64_t rows = std::max(ctx.most_ep_rows, ctx.groups.ep.size() * copies.dim(0));
    received = rows * std::min(copies.dim(1), placement.most_held());
    fill_planned_rows(ctx.groups.ep.rank(), copies.num_elements(), received, dispatch);
  }
  const auto allocate = [&] { return ctx.arena.allocate(DType::kI32, {received}); };
  ops::RoutedRows of_all{.offsets = ctx.arena.allocate(DType::kI32, {routed.offsets.dim(0)}),
                         .choices = allocate(),
                         .tokens = allocate(),
                         .rows = ctx.arena.allocate(DType::kI32, {received, 1})};
  {
    const ArenaScope scope(ctx.arena);
    const Tensor received_copies = ctx.arena.allocate(DType::kI32, {received, 1});
    dispatch_choices(ctx, dispatch, received_copies, copies, routed);
    ops::sort_by_expert(ctx, of_all, received_copies);
  }
  // No row is of a copy before the first one here, so its rows begin at 0.
  dispatch.routed = of_all;
  dispatch.routed.offsets = of_all.offsets.rows(held.begin, held.end + 1);
  return dispatch;
}

void dispatch_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x,
                   const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const Tensor received = allocate_like(ctx, y.dim(0), x);
  {
    const ArenaScope sending(ctx.arena);
    const Tensor sent = allocate_like(ctx, routed.tokens.dim(0), x);
    ops::gather_rows(ctx, sent, x, routed.tokens);
    ctx.groups.ep.all_to_all(ctx.stream, received, sent, dispatch.send_rows, dispatch.receive_rows);
  }
  ops::gather_rows(ctx, y, received, dispatch.routed.choices);
}

void return_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor rows) {
  const ArenaScope scope(ctx.arena);
  const Tensor sent = allocate_like(ctx, rows.dim(0), rows);
  ops::gather_rows(ctx, sent, rows, dispatch.routed.rows.reshaped({rows.dim(0)}));
  ctx.groups.ep.all_to_all(ctx.stream, y, sent, dispatch.receive_rows, dispatch.send_rows);
}

void dispatch_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x,
                      const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const Tensor sent = ctx.arena.allocate(x.dtype(), {routed.choices.dim(0), 1});
  ops::gather_elements(ctx, sent, x, routed.choices);
  ctx.groups.ep.all_to_all(ctx.stream, y, sent, dispatch.send_rows, dispatch.receive_rows);
}

void return_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y,
                    Tensor values, const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const int64_t num_rows = routed.choices.dim(0);
  const Tensor returned = ctx.arena.allocate(y.dtype(), {num_rows, 1});
  ctx.groups.ep.all_to_all(ctx.stream, returned, values, dispatch.receive_rows, dispatch.send_rows);
  ops::gather_elements(ctx, y, returned, routed.rows.reshaped({num_rows}));
}

}  // namespace slimexx::model

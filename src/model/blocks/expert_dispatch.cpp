#include "model/blocks/expert_dispatch.h"

#include <algorithm>
#include <span>

#include "slimexx/base/check.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/heads.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;
using tensor::DType;
using tensor::Tensor;

// Fills in row counts for a planning context, which has no actual counts. The counts sum to `sent`
// and `received`.
void plan_own_rows(int rank, int64_t sent, int64_t received, ExpertDispatch& dispatch) {
  const auto own = static_cast<size_t>(rank), next = (own + 1) % dispatch.send_rows.size();
  const int64_t stay = std::min(sent, received);
  dispatch.send_rows[own] = dispatch.receive_rows[own] = stay;
  dispatch.send_rows[next] += sent - stay;
  dispatch.receive_rows[next] += received - stay;
  dispatch.num_own = received;
}

int64_t most_tokens_of_ranks(const ops::Context& ctx, Tensor copies) {
  const int64_t ranks = int64_t{ctx.groups.ep.size()} * ctx.groups.etp.size();
  return std::max(ctx.most_ep_rows, ranks * copies.dim(0));
}

// Returns the upper bound on M.
int64_t plan_rows(const ops::Context& ctx, const ExpertPlacement& placement, Tensor copies,
                  ExpertDispatch& dispatch) {
  const dist::Groups& groups = ctx.groups;
  const int64_t ep = groups.ep.size(), etp = groups.etp.size(), sent = copies.num_elements();
  const int64_t tokens = most_tokens_of_ranks(ctx, copies);
  const int64_t rows_of_token = std::min(copies.dim(1), placement.most_held());
  // Row counts of tp ranks differ by at most one; those of cp ranks by a few per sequence.
  const bool is_even = groups.tp.size() % etp == 0 || groups.cp.size() == 1;
  int64_t own_tokens = tokens;
  if (etp > 1 && is_even) own_tokens = std::min(tokens, (tokens + etp - 1) / etp + ep);
  plan_own_rows(groups.ep.rank(), sent, ep == 1 ? sent : own_tokens * rows_of_token, dispatch);
  dispatch.etp_rows.assign(static_cast<size_t>(etp), {0, std::min(sent, dispatch.num_own)});
  return most_rows_of_ranks(ctx, placement, copies);
}

// All-gathers `offsets` over groups.etp and groups.ep: ordered by ep rank, then by etp rank.
std::vector<int32_t> gather_offsets(const ops::Context& ctx, Tensor offsets) {
  const int64_t width = offsets.dim(0), etp = ctx.groups.etp.size(), ep = ctx.groups.ep.size();
  const ArenaScope scope(ctx.arena);
  Tensor of_etp = offsets;
  if (etp > 1) {
    of_etp = ctx.arena.allocate(DType::kI32, {etp * width});
    ctx.groups.etp.all_gather(ctx.stream, of_etp, offsets);
  }
  const Tensor all = ctx.arena.allocate(DType::kI32, {ep * etp * width});
  ctx.groups.ep.all_gather(ctx.stream, all, of_etp);
  std::vector<int32_t> values(static_cast<size_t>(all.dim(0)));
  tensor::download(ctx.stream, values.data(), all);
  return values;
}

// Returns M.
int64_t count_rows(const dist::Groups& groups, const ExpertPlacement& placement,
                   const std::vector<int32_t>& offsets, ExpertDispatch& dispatch) {
  const int64_t own = groups.ep.rank(), ranks = groups.ep.size(), etp = groups.etp.size();
  const int64_t own_etp = groups.etp.rank(), width = placement.num_copies + 1;
  // Rows that ep rank `from` sends to the copies of ep rank `to`.
  const auto count = [&](int64_t from, int64_t to, int64_t etp_rank) {
    const int32_t* theirs = offsets.data() + (from * etp + etp_rank) * width;
    const dist::Range held = placement.held_by(to);
    return int64_t{theirs[held.end]} - theirs[held.begin];
  };
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<size_t>(rank);
    dispatch.send_rows[r] = count(own, rank, own_etp);
    dispatch.receive_rows[r] = count(rank, own, own_etp);
  }
  int64_t received = 0;
  for (int64_t etp_rank = 0; etp_rank < etp; ++etp_rank) {
    const int64_t begin = received;
    for (int64_t rank = 0; rank < ranks; ++rank) received += count(rank, own, etp_rank);
    dispatch.etp_rows.push_back({begin, received});
  }
  dispatch.num_own = dispatch.etp_rows[static_cast<size_t>(own_etp)].size();
  return received;
}

Tensor allocate_like(const ops::Context& ctx, int64_t num_rows, Tensor x) {
  return ctx.arena.allocate(x.dtype(), {num_rows, x.dim(1)});
}

const dist::Range& own_etp_rows(const ops::Context& ctx, const ExpertDispatch& dispatch) {
  return dispatch.etp_rows[static_cast<size_t>(ctx.groups.etp.rank())];
}

// This etp rank's received rows among `all` [M, ...].
Tensor received_of(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor all) {
  const int64_t begin = own_etp_rows(ctx, dispatch).begin;
  return all.rows(begin, begin + dispatch.num_own);
}

// Returns M; in a planning context, the rows of an even spread.
int64_t num_exchanged(const ExpertDispatch& dispatch) {
  int64_t num_rows = 0;
  for (const dist::Range& range : dispatch.etp_rows) num_rows += range.size();
  return num_rows;
}

// In-place reduce-scatter over etp ranks of the rows ranges[rank] of `data`. In a planning context
// these ranges assume an even spread, so memory for `most_rows` is added.
void sum_over_etp(const ops::Context& ctx, Tensor data, std::span<const dist::Range> ranges,
                  int64_t most_rows) {
  if (ctx.planning()) {
    const ArenaScope scope(ctx.arena);
    allocate_like(ctx, (ctx.groups.etp.size() - 1) * most_rows, data);
  }
  ctx.groups.etp.reduce_scatter_sum(ctx.stream, ctx.arena, data, ranges, dist::SumOrder::kRank);
}

// Convert between blocks[e*N,F] and wide[N,e*F]; both hold the columns of each etp rank, in rank
// order.
void split_columns(const ops::Context& ctx, Tensor blocks, Tensor wide) {
  const int64_t rows = wide.dim(0), width = blocks.dim(1);
  for (int64_t r = 0; r < ctx.groups.etp.size(); ++r)
    ops::copy_head_columns(ctx, blocks.rows(r * rows, (r + 1) * rows).split_last({1, width}), 0,
                           wide.split_last({1, wide.dim(1)}), r * width, width);
}
void join_columns(const ops::Context& ctx, Tensor wide, Tensor blocks) {
  const int64_t rows = wide.dim(0), width = blocks.dim(1);
  for (int64_t r = 0; r < ctx.groups.etp.size(); ++r)
    ops::copy_head_columns(ctx, wide.split_last({1, wide.dim(1)}), r * width,
                           blocks.rows(r * rows, (r + 1) * rows).split_last({1, width}), 0, width);
}

// All-to-all over etp ranks. blocks[e*O,W] has this rank's O rows, one block per etp rank with that
// rank's columns. columns[M,W] has this rank's columns of the rows of all etp ranks.
void exchange_blocks(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor blocks,
                     Tensor columns, bool to_columns) {
  const int64_t own = own_etp_rows(ctx, dispatch).size(), etp = ctx.groups.etp.size();
  const std::vector<int64_t> own_rows(static_cast<size_t>(etp), own);
  std::vector<int64_t> all_rows;
  for (const dist::Range& range : dispatch.etp_rows) all_rows.push_back(range.size());
  blocks = blocks.rows(0, etp * own);  // larger in a plan
  columns = columns.rows(0, num_exchanged(dispatch));
  if (to_columns)
    ctx.groups.etp.all_to_all(ctx.stream, columns, blocks, own_rows, all_rows);
  else
    ctx.groups.etp.all_to_all(ctx.stream, blocks, columns, all_rows, own_rows);
}

// For e blocks of M rows, the row range of each etp rank's block. In a planning context a range has
// only the rows of an even spread (num_exchanged).
std::vector<dist::Range> block_ranges(const ExpertDispatch& dispatch) {
  std::vector<dist::Range> ranges;
  for (size_t r = 0; r < dispatch.etp_rows.size(); ++r) {
    const int64_t begin = static_cast<int64_t>(r) * dispatch.num_received();
    ranges.push_back({begin, begin + num_exchanged(dispatch)});
  }
  return ranges;
}

// received[O,H] gets the rows of all ep ranks' x[T,H] for this rank's copies, ordered by source
// rank.
void send_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor received, Tensor x,
               const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const Tensor sent = allocate_like(ctx, routed.tokens.dim(0), x);
  ops::gather_rows(ctx, sent, x, routed.tokens);
  ctx.groups.ep.all_to_all(ctx.stream, received, sent, dispatch.send_rows, dispatch.receive_rows);
}

// Reorders the rows of the experts' outputs into the order in which they were received.
Tensor order_as_received(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor rows) {
  const Tensor received = allocate_like(ctx, rows.dim(0), rows);
  ops::gather_rows(ctx, received, rows, dispatch.routed.rows.reshaped({rows.dim(0)}));
  return received;
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
  const std::vector<int32_t> offsets = gather_offsets(ctx, routed.offsets);
  const int64_t received = ctx.planning() ? plan_rows(ctx, placement, copies, dispatch)
                                          : count_rows(ctx.groups, placement, offsets, dispatch);
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
  // All received rows belong to this rank's copies, so the first copy's rows start at 0.
  dispatch.routed = of_all;
  dispatch.routed.offsets = of_all.offsets.rows(held.begin, held.end + 1);
  return dispatch;
}

int64_t most_rows_of_ranks(const ops::Context& ctx, const ExpertPlacement& placement,
                           Tensor copies) {
  return most_tokens_of_ranks(ctx, copies) * std::min(copies.dim(1), placement.most_held());
}

void dispatch_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x,
                   const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const Tensor received = allocate_like(ctx, y.dim(0), x);
  send_rows(ctx, dispatch, received_of(ctx, dispatch, received), x, routed);
  ctx.groups.etp.all_gather_ranges(ctx.stream, received, dispatch.etp_rows);
  ops::gather_rows(ctx, y, received, dispatch.routed.choices);
}

void return_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor rows) {
  const ArenaScope scope(ctx.arena);
  const Tensor sent = order_as_received(ctx, dispatch, rows);
  sum_over_etp(ctx, sent, dispatch.etp_rows, dispatch.num_own);
  ctx.groups.ep.all_to_all(ctx.stream, y, received_of(ctx, dispatch, sent), dispatch.receive_rows,
                           dispatch.send_rows);
}

void dispatch_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x,
                      const ops::RoutedRows& routed) {
  if (ctx.groups.etp.size() == 1) return dispatch_rows(ctx, dispatch, y, x, routed);
  const ArenaScope scope(ctx.arena);
  const Tensor received = allocate_like(ctx, y.dim(0), y);
  {
    const ArenaScope sending(ctx.arena);
    const Tensor blocks = allocate_like(ctx, ctx.groups.etp.size() * dispatch.num_own, y);
    const Tensor own = allocate_like(ctx, dispatch.num_own, x);
    send_rows(ctx, dispatch, own, x, routed);
    split_columns(ctx, blocks, own);
    exchange_blocks(ctx, dispatch, blocks, received, true);
  }
  ops::gather_rows(ctx, y, received, dispatch.routed.choices);
}

void return_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y,
                    Tensor columns) {
  if (ctx.groups.etp.size() == 1) return return_rows(ctx, dispatch, y, columns);
  const ArenaScope scope(ctx.arena);
  const Tensor own = allocate_like(ctx, dispatch.num_own, y);
  {
    const ArenaScope receiving(ctx.arena);
    const Tensor blocks = allocate_like(ctx, ctx.groups.etp.size() * dispatch.num_own, columns);
    exchange_blocks(ctx, dispatch, blocks, order_as_received(ctx, dispatch, columns), false);
    join_columns(ctx, own, blocks);
  }
  ctx.groups.ep.all_to_all(ctx.stream, y, own, dispatch.receive_rows, dispatch.send_rows);
}

void dispatch_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x,
                      const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const Tensor sent = ctx.arena.allocate(x.dtype(), {routed.choices.dim(0), 1});
  ops::gather_elements(ctx, sent, x, routed.choices);
  ctx.groups.ep.all_to_all(ctx.stream, received_of(ctx, dispatch, y), sent, dispatch.send_rows,
                           dispatch.receive_rows);
  ctx.groups.etp.all_gather_ranges(ctx.stream, y, dispatch.etp_rows);
}

void return_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y,
                    Tensor values, const ops::RoutedRows& routed) {
  const ArenaScope scope(ctx.arena);
  const int64_t num_rows = routed.choices.dim(0);
  const Tensor returned = ctx.arena.allocate(y.dtype(), {num_rows, 1});
  sum_over_etp(ctx, values, dispatch.etp_rows, dispatch.num_own);
  ctx.groups.ep.all_to_all(ctx.stream, returned, received_of(ctx, dispatch, values),
                           dispatch.receive_rows, dispatch.send_rows);
  ops::gather_elements(ctx, y, returned, routed.rows.reshaped({num_rows}));
}

void gather_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x) {
  const ArenaScope scope(ctx.arena);
  const int64_t rows = x.dim(0), rank = ctx.groups.etp.rank();
  const Tensor blocks = allocate_like(ctx, ctx.groups.etp.size() * rows, x);
  tensor::copy_bytes(ctx.stream, blocks.rows(rank * rows, (rank + 1) * rows), x);
  ctx.groups.etp.all_gather_ranges(ctx.stream, blocks, block_ranges(dispatch));
  join_columns(ctx, y, blocks);
}

void sum_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, Tensor y, Tensor x) {
  const ArenaScope scope(ctx.arena);
  const int64_t rows = x.dim(0), rank = ctx.groups.etp.rank();
  const Tensor blocks = allocate_like(ctx, ctx.groups.etp.size() * rows, y);
  split_columns(ctx, blocks, x);
  sum_over_etp(ctx, blocks, block_ranges(dispatch), rows);
  tensor::copy_bytes(ctx.stream, y, blocks.rows(rank * rows, (rank + 1) * rows));
}

}  // namespace slimexx::model

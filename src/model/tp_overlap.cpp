#include "model/tp_overlap.h"

namespace slimexx::model {
namespace {

bool goes_beside(const ops::Context& ctx, const Batch& batch) {
  return ctx.overlaps_tp && !batch.tp_rows.empty() && !has_all_rows(batch);
}

constexpr int64_t kArenaAlignment = 256;  // of what an arena of a device gives

}  // namespace

GatheredRows::GatheredRows(const ops::Context& ctx, const Batch& batch, Tensor own)
    : ctx_(ctx), batch_(batch), own_(own), is_beside_(goes_beside(ctx, batch)) {
  if (!is_beside_) return;
  all_ = ctx.arena.allocate(own.dtype(), {batch.tokens.dim(0), own.dim(1)});
  // An event of its own: a Branch would also join the gathers that start behind this one.
  const tensor::Stream stream = ctx.planning() ? ctx.stream : tensor::branch_stream(ctx.device());
  passed_.record(ctx.stream);
  passed_.wait_on(stream);
  ctx.groups.tp.gather_shares(stream, all_, own, batch.tp_rows);
  passed_.record(stream);
}

Tensor GatheredRows::wait() {
  if (is_beside_) {
    passed_.wait_on(ctx_.stream);
  } else if (!all_.defined()) {
    all_ = gather_tp_rows(ctx_, batch_, own_);
  }
  return all_;
}

ScatteredSum::ScatteredSum(const ops::Context& ctx, const Batch& batch, Tensor own)
    : ctx_(ctx),
      batch_(batch),
      own_(own),
      terms_(allocate_partial(ctx, batch, own)),
      is_beside_(goes_beside(ctx, batch)) {
  if (!is_beside_) return;
  // What the sum takes has to stay while it is under way, and is taken from an arena of its own.
  const int64_t bytes = (ctx.groups.tp.size() - 1) * own.size_bytes();
  scratch_ = ctx.arena.allocate(
      DType::kU8, {(bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment});
}

void ScatteredSum::start() {
  if (!is_beside_) return scatter_tp_sum(ctx_, batch_, own_, terms_);
  branch_.emplace(ctx_, scratch_);
  const ops::Context& beside = branch_->context();
  ctx_.groups.tp.sum_to_shares(beside.stream, beside.arena, own_, terms_, batch_.tp_rows);
}

void ScatteredSum::wait() {
  if (branch_) branch_->join();
}

}  // namespace slimexx::model

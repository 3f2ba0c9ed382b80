#include "model/tp_overlap.h"

namespace slimexx::model {
namespace {

bool goes_beside(const ops::Context& ctx, const Batch& batch) {
  return ctx.overlaps_tp && !batch.tp_rows.empty() && !has_all_rows(batch);
}

tensor::Stream exchange_stream(const ops::Context& ctx) {
  return ctx.planning() ? ctx.stream : tensor::branch_stream(ctx.device());
}

// Runs `exchange(stream)` behind what the context has queued; `passed` is behind it then.
template <class Exchange>
void queue_beside(const ops::Context& ctx, tensor::Event& passed, const Exchange& exchange) {
  const tensor::Stream stream = exchange_stream(ctx);
  passed.record(ctx.stream);
  passed.wait_on(stream);
  exchange(stream);
  passed.record(stream);
}

}  // namespace

GatheredRows::GatheredRows(const ops::Context& ctx, const Batch& batch, Tensor own)
    : ctx_(ctx), batch_(batch), own_(own), is_beside_(goes_beside(ctx, batch)) {
  if (!is_beside_) return;
  all_ = ctx.arena.allocate(own.dtype(), {batch.tokens.dim(0), own.dim(1)});
  queue_beside(ctx, passed_, [&](tensor::Stream stream) {
    ctx.groups.tp.gather_shares(stream, all_, own, batch.tp_rows);
  });
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
  // What the sum takes has to stay while it is under way.
  if (is_beside_)
    scratch_ = ctx.arena.allocate(DType::kU8, {(ctx.groups.tp.size() - 1) * own.size_bytes()});
}

void ScatteredSum::start() {
  if (!is_beside_) return scatter_tp_sum(ctx_, batch_, own_, terms_);
  tensor::Arena scratch = ctx_.planning() ? tensor::Arena::for_planning(ctx_.device(), "sum")
                                          : tensor::Arena(ctx_.device(), 0, "sum");
  if (!ctx_.planning()) scratch.borrow(scratch_);
  queue_beside(ctx_, passed_, [&](tensor::Stream stream) {
    ctx_.groups.tp.sum_to_shares(stream, scratch, own_, terms_, batch_.tp_rows);
  });
}

void ScatteredSum::wait() {
  if (is_beside_) passed_.wait_on(ctx_.stream);
}

}  // namespace slimexx::model

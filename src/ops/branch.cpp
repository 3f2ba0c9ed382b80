#include "slimexx/ops/branch.h"

#include "slimexx/base/check.h"

namespace slimexx::ops {
namespace {

bool has_queues(const tensor::Stream& stream) {
  return !stream.device.is_cpu() && !stream.is_planning;
}

tensor::Arena make_arena(const Context& ctx, Tensor memory) {
  if (ctx.planning()) return tensor::Arena::for_planning(ctx.device(), "branch");
  tensor::Arena arena(ctx.device(), 0, "branch");
  arena.borrow(memory);
  return arena;
}

}  // namespace

Branch::Branch(const Context& ctx, Tensor memory)
    : from_(ctx.stream),
      arena_(make_arena(ctx, memory)),
      memory_bytes_(memory.size_bytes()),
      context_{.stream = has_queues(from_) ? tensor::branch_stream(ctx.device()) : ctx.stream,
               .arena = arena_,
               .groups = ctx.groups,
               .most_ep_rows = ctx.most_ep_rows} {
  if (!has_queues(from_)) return;
  passed_.record(from_);
  passed_.wait_on(context_.stream);
}

void Branch::join() {
  SLX_CHECK(arena_.high_water_bytes() <= memory_bytes_, "a branch needs {} bytes, but has {}",
            arena_.high_water_bytes(), memory_bytes_);
  if (!has_queues(from_)) return;
  passed_.record(context_.stream);
  passed_.wait_on(from_);
}

}  // namespace slimexx::ops

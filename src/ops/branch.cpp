#include "slimexx/ops/branch.h"

#include "slimexx/base/check.h"

namespace slimexx::ops {
namespace {

bool has_queues(const Context& ctx) { return !ctx.device().is_cpu() && !ctx.planning(); }

tensor::Arena make_arena(const Context& ctx, Tensor memory) {
  if (ctx.planning()) return tensor::Arena::for_planning(ctx.device(), "branch");
  tensor::Arena arena(ctx.device(), 0, "branch");
  arena.borrow(memory);
  return arena;
}

}  // namespace

Branch::Branch(const Context& ctx, Tensor memory)
    : arena_(make_arena(ctx, memory)),
      memory_bytes_(memory.size_bytes()),
      context_{.stream = has_queues(ctx) ? tensor::branch_stream(ctx.device()) : ctx.stream,
               .arena = arena_,
               .groups = ctx.groups,
               .most_ep_rows = ctx.most_ep_rows} {
  if (!has_queues(ctx)) return;
  passed_.record(ctx.stream);
  passed_.wait_on(context_.stream);
}

void Branch::join(const Context& ctx) {
  SLX_CHECK(arena_.high_water_bytes() <= memory_bytes_, "a branch took {} bytes and has {}",
            arena_.high_water_bytes(), memory_bytes_);
  if (!has_queues(ctx)) return;
  passed_.record(context_.stream);
  passed_.wait_on(ctx.stream);
}

}  // namespace slimexx::ops

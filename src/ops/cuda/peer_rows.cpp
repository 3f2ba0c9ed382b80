#include "slimexx/dist/peer_memory.h"
#include "slimexx/kernels/peers.h"

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {
namespace {

kernels::PeerWindows windows_of(const Context& ctx) {
  const dist::PeerMemory& memory = *ctx.groups.ep_memory;
  kernels::PeerWindows windows;
  for (size_t rank = 0; rank < memory.windows().size(); ++rank)
    windows.at[rank] = memory.windows()[rank];
  windows.rank = memory.rank();
  windows.size = memory.size();
  windows.cancelled = memory.cancelled();
  windows.waits = memory.kernels_wait();
  return windows;
}

kernels::PeerRuns table_of(const PeerRuns& runs) {
  return {.memory = runs.memory.raw(), .first_copy = runs.first_copy, .copies = runs.num_copies};
}

}  // namespace

int64_t peer_runs_bytes(int64_t copies, int64_t ranks) {
  return kernels::peer_runs_bytes(copies, ranks);
}

void show_rows(const Context& ctx, Tensor x, const RoutedRows& routed, int64_t tokens_at,
               int64_t inputs_at, int64_t returned_at) {
  const char* fault =
      kernels::show_rows(windows_of(ctx), {tokens_at, inputs_at, returned_at}, routed.offsets.i32(),
                         routed.offsets.dim(0) - 1, routed.tokens.i32(), routed.tokens.dim(0),
                         x.raw(), x.size_bytes(), handle(ctx));
  check_launch("show_rows", fault, x, routed.offsets);
}

void find_peer_runs(const Context& ctx, const PeerRuns& runs, Tensor offsets) {
  check_launch("find_peer_runs",
               kernels::find_peer_runs(windows_of(ctx), table_of(runs), offsets.i32(), handle(ctx)),
               runs.memory, offsets);
}

void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  check_launch("fetch_peer_rows",
               kernels::fetch_peer_rows(windows_of(ctx), table_of(runs), y.raw(), y.dim(0),
                                        y.dim(1), handle(ctx)),
               y, runs.memory);
}

void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  check_launch("return_peer_rows",
               kernels::return_peer_rows(windows_of(ctx), table_of(runs), y.raw(), y.dim(0),
                                         y.dim(1), handle(ctx)),
               y, runs.memory);
}

void await_peer_rows(const Context& ctx) {
  check_launch("await_peer_rows", kernels::queue_peer_barrier(windows_of(ctx), handle(ctx)), {},
               {});
}

}  // namespace slimexx::ops::cuda

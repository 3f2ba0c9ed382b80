#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"
#include "slimexx/dist/peer_regions.h"

namespace slimexx::ops::cuda {
namespace {

kernels::PeerRegions regions_of(const Context& ctx) {
  return dist::regions_of(*ctx.groups.ep_memory);
}

kernels::PeerRuns table_of(const PeerRuns& runs) {
  return {.memory = runs.memory.raw(), .first_copy = runs.first_copy, .copies = runs.num_copies};
}

}  // namespace

int64_t peer_runs_bytes(int64_t copies, int64_t ranks) {
  return kernels::peer_runs_bytes(copies, ranks);
}

void show_rows(const Context& ctx, const PeerRuns& runs, Tensor offsets, const PeerRows& rows) {
  const dist::PeerMemory& memory = *ctx.groups.ep_memory;
  kernels::ShownRows shown;
  shown.offsets_at = memory.place_of(rows.routed.offsets);
  shown.rows_at = memory.place_of(rows.routed.rows);
  shown.tokens = rows.routed.rows.dim(0);
  shown.top_k = rows.routed.rows.dim(1);
  shown.inputs_at[0] = memory.place_of(rows.x);
  if (rows.second.defined()) shown.inputs_at[1] = memory.place_of(rows.second);
  shown.returned_at = memory.place_of(rows.returned);
  if (rows.values.defined()) {
    shown.values_at = memory.place_of(rows.values);
    shown.returned_values_at = memory.place_of(rows.returned_values);
  }
  const kernels::PeerRegions ranks = regions_of(ctx);
  if (!memory.kernels_wait()) {
    check_launch("show_rows", kernels::show_rows(ranks, shown, handle(ctx)), rows.x, offsets);
    memory.meet();
  }
  check_launch("show_rows",
               kernels::find_peer_runs(ranks, shown, table_of(runs), offsets.i32(), handle(ctx)),
               rows.x, offsets);
}

void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y, bool of_second) {
  check_launch("fetch_peer_rows",
               kernels::fetch_peer_rows(regions_of(ctx), table_of(runs), of_second ? 1 : 0, y.raw(),
                                        y.dim(0), y.dim(1), handle(ctx)),
               y, runs.memory);
}

void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  check_launch("return_peer_rows",
               kernels::return_peer_rows(regions_of(ctx), table_of(runs), y.raw(), y.dim(0),
                                         y.dim(1), handle(ctx)),
               y, runs.memory);
}

void fetch_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y) {
  check_launch(
      "fetch_peer_values",
      kernels::fetch_peer_values(regions_of(ctx), table_of(runs), y.f32(), y.dim(0), handle(ctx)),
      y, runs.memory);
}

void return_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y) {
  check_launch(
      "return_peer_values",
      kernels::return_peer_values(regions_of(ctx), table_of(runs), y.f32(), y.dim(0), handle(ctx)),
      y, runs.memory);
}

void await_peer_rows(const Context& ctx) {
  const dist::PeerMemory& memory = *ctx.groups.ep_memory;
  if (!memory.kernels_wait()) return memory.meet();
  check_launch("await_peer_rows", kernels::queue_peer_barrier(regions_of(ctx), handle(ctx)), {},
               {});
}

}  // namespace slimexx::ops::cuda

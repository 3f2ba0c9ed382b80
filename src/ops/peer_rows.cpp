#include "slimexx/ops/peer_rows.h"

#include "ops/checks.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/dist/peer_memory.h"

namespace slimexx::ops {
namespace {

const dist::PeerMemory& memory_of(const Context& ctx) {
  SLX_CHECK(ctx.groups.ep_memory != nullptr && !ctx.device().is_cpu(),
            "peer rows need ep_memory and a GPU");
  return *ctx.groups.ep_memory;
}

void check_runs(const char* op, const Context& ctx, const PeerRuns& runs) {
  check_operand(op, "runs", ctx, runs.memory, tensor::DType::kU8, {kAny});
}

}  // namespace

PeerRuns allocate_peer_runs(const Context& ctx, int64_t first_copy, int64_t num_copies) {
  int64_t bytes = 0;
#ifdef SLX_WITH_CUDA
  bytes = cuda::peer_runs_bytes(num_copies, ctx.groups.ep.size());
#endif
  return {ctx.arena.allocate(tensor::DType::kU8, {bytes}), first_copy, num_copies};
}

void show_rows(const Context& ctx, const PeerRuns& runs, Tensor offsets, const PeerRows& rows) {
  constexpr const char* kOp = "show_rows";
  [[maybe_unused]] const dist::PeerMemory& memory = memory_of(ctx);
  const int64_t tokens = rows.routed.rows.dim(0), num_rows = rows.routed.rows.num_elements();
  check_runs(kOp, ctx, runs);
  check_i32(kOp, "offsets", ctx, offsets, {runs.num_copies + 1});
  check_i32(kOp, "routed.offsets", ctx, rows.routed.offsets, {kAny});
  check_compute(kOp, "x", ctx, rows.x, {tokens, kAny});
  if (rows.second.defined())
    check_compute(kOp, "second", ctx, rows.second, {tokens, rows.x.dim(1)});
  check_compute(kOp, "returned", ctx, rows.returned, {num_rows, rows.x.dim(1)});
  if (rows.values.defined()) {
    const int64_t top_k = rows.routed.rows.dim(1);
    check_f32(kOp, "values", ctx, rows.values, {tokens, top_k});
    check_f32(kOp, "returned_values", ctx, rows.returned_values, {tokens, top_k});
  }
  SLX_LAUNCH(show_rows(ctx, runs, offsets, rows));
}

void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y,
                     [[maybe_unused]] bool of_second) {
  constexpr const char* kOp = "fetch_peer_rows";
  memory_of(ctx);
  check_runs(kOp, ctx, runs);
  check_compute(kOp, "y", ctx, y, {kAny, kAny});
  SLX_LAUNCH(fetch_peer_rows(ctx, runs, y, of_second));
}

void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  constexpr const char* kOp = "return_peer_rows";
  memory_of(ctx);
  check_runs(kOp, ctx, runs);
  check_compute(kOp, "y", ctx, y, {kAny, kAny});
  SLX_LAUNCH(return_peer_rows(ctx, runs, y));
}

void fetch_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y) {
  memory_of(ctx);
  check_runs("fetch_peer_values", ctx, runs);
  check_f32("fetch_peer_values", "y", ctx, y, {kAny});
  SLX_LAUNCH(fetch_peer_values(ctx, runs, y));
}

void return_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y) {
  memory_of(ctx);
  check_runs("return_peer_values", ctx, runs);
  check_f32("return_peer_values", "y", ctx, y, {kAny});
  SLX_LAUNCH(return_peer_values(ctx, runs, y));
}

void await_peer_rows(const Context& ctx) {
  memory_of(ctx);
  SLX_LAUNCH(await_peer_rows(ctx));
}

}  // namespace slimexx::ops

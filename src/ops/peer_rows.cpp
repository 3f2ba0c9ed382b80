#include "slimexx/ops/peer_rows.h"

#include "ops/checks.h"
#include "ops/cuda/cuda_ops.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/kernels/limits.h"

namespace slimexx::ops {
namespace {

constexpr int64_t kAlign = 256;

int64_t align_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

const dist::PeerMemory& memory_of(const Context& ctx) {
  SLX_CHECK(ctx.groups.ep_memory != nullptr && !ctx.device().is_cpu(),
            "rows of peers without their memory");
  return *ctx.groups.ep_memory;
}

// Where show_rows puts what, in a window.
struct ShownBytes {
  int64_t tokens_at = 0, inputs_at = 0, returned_at = 0, end = 0;
};
ShownBytes place_rows(int64_t tokens, int64_t rows, int64_t width) {
  const int64_t row_bytes = width * tensor::dtype_bytes(tensor::DType::kBF16);
  ShownBytes bytes;
  bytes.tokens_at = kernels::kShownRowsBegin;
  bytes.inputs_at = bytes.tokens_at + align_up(rows * 4);
  bytes.returned_at = bytes.inputs_at + align_up(tokens * row_bytes);
  bytes.end = bytes.returned_at + align_up(rows * row_bytes);
  return bytes;
}

ShownBytes place_rows(const dist::PeerMemory& memory, const RoutedRows& routed, int64_t width) {
  const ShownBytes bytes = place_rows(routed.rows.dim(0), routed.rows.num_elements(), width);
  SLX_CHECK_LE(bytes.end, memory.size_bytes());
  return bytes;
}

void check_runs(const char* op, const Context& ctx, const PeerRuns& runs) {
  check_operand(op, "runs", ctx, runs.memory, tensor::DType::kU8, {kAny});
}

}  // namespace

int64_t peer_window_bytes(int64_t tokens, int64_t top_k, int64_t width) {
  return place_rows(tokens, tokens * top_k, width).end;
}

void show_rows(const Context& ctx, Tensor x, const RoutedRows& routed) {
  constexpr const char* kOp = "show_rows";
  const dist::PeerMemory& memory = memory_of(ctx);
  check_compute(kOp, "x", ctx, x, {routed.rows.dim(0), kAny});
  check_i32(kOp, "tokens", ctx, routed.tokens, {routed.rows.num_elements()});
  check_i32(kOp, "offsets", ctx, routed.offsets, {kAny});
  [[maybe_unused]] const ShownBytes b = place_rows(memory, routed, x.dim(1));
  SLX_LAUNCH(show_rows(ctx, x, routed, b.tokens_at, b.inputs_at, b.returned_at));
}

Tensor returned_rows(const Context& ctx, const RoutedRows& routed, int64_t width) {
  const dist::PeerMemory& memory = memory_of(ctx);
  char* window = memory.windows()[static_cast<size_t>(memory.rank())];
  return {window + place_rows(memory, routed, width).returned_at,
          tensor::DType::kBF16,
          ctx.device(),
          {routed.rows.num_elements(), width}};
}

PeerRuns allocate_peer_runs(const Context& ctx, int64_t first_copy, int64_t num_copies) {
  [[maybe_unused]] const int64_t ranks = memory_of(ctx).size();
  int64_t bytes = 0;
#ifdef SLX_WITH_CUDA
  bytes = cuda::peer_runs_bytes(num_copies, ranks);
#endif
  return {ctx.arena.allocate(tensor::DType::kU8, {bytes}), first_copy, num_copies};
}

void find_peer_runs(const Context& ctx, const PeerRuns& runs, Tensor offsets) {
  constexpr const char* kOp = "find_peer_runs";
  const dist::PeerMemory& memory = memory_of(ctx);
  check_runs(kOp, ctx, runs);
  check_i32(kOp, "offsets", ctx, offsets, {runs.num_copies + 1});
  if (!memory.kernels_wait()) memory.meet();
  SLX_LAUNCH(find_peer_runs(ctx, runs, offsets));
}

void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  constexpr const char* kOp = "fetch_peer_rows";
  check_runs(kOp, ctx, runs);
  check_compute(kOp, "y", ctx, y, {kAny, kAny});
  SLX_LAUNCH(fetch_peer_rows(ctx, runs, y));
}

void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y) {
  constexpr const char* kOp = "return_peer_rows";
  check_runs(kOp, ctx, runs);
  check_compute(kOp, "y", ctx, y, {kAny, kAny});
  SLX_LAUNCH(return_peer_rows(ctx, runs, y));
}

void await_peer_rows(const Context& ctx) {
  const dist::PeerMemory& memory = memory_of(ctx);
  if (!memory.kernels_wait()) return memory.meet();
  SLX_LAUNCH(await_peer_rows(ctx));
}

}  // namespace slimexx::ops

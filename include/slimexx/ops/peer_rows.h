// Dispatch and combine for experts on the ranks of groups.ep: kernels read and write the memory of
// all these ranks (Context::groups.ep_memory, which must exist). The number of received rows stays
// on the device. CUDA only.
//
// All ranks call, in this order: show_rows; any number of fetches and returns; await_peer_rows. The
// tensors passed to show_rows must lie in the region of ep_memory, and must not change until
// await_peer_rows, except `returned` and `returned_values`.
//
// Legend: T tokens of this rank, k experts of a token, R = T*k routed rows, C copies of experts, h
// copies held by this rank, M upper bound on the rows received for them, H hidden size.
#pragma once
#include <cstdint>

#include "slimexx/ops/experts.h"

namespace slimexx::ops {

// The locations, on all ranks, of the rows routed to this rank's copies; allocated from the arena.
struct PeerRuns {
  Tensor memory;
  int64_t first_copy = 0, num_copies = 0;
};
PeerRuns allocate_peer_runs(const Context& ctx, int64_t first_copy, int64_t num_copies);

struct PeerRows {
  RoutedRows routed;      // sorted by C copies
  Tensor x, second = {};  // [T,H], for fetch_peer_rows
  Tensor returned;        // [R,H]: filled by the ranks of the experts
  // [T,k] f32: input of fetch_peer_values and output of return_peer_values. Define both or neither.
  Tensor values = {}, returned_values = {};
};
// Publishes this rank's rows, and waits on the stream until all ranks have done so. Writes
// offsets[h+1] i32: the ranges of the received rows by held copy; within a copy, rows are ordered
// by rank.
void show_rows(const Context& ctx, const PeerRuns& runs, Tensor offsets, const PeerRows& rows);
// y[M,H] gets the received rows of x (or of `second`), followed by the zeros that
// expert_matmul_backward_weight needs.
void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y, bool of_second = false);
// Sends the rows of y back to `returned` of the ranks that they came from.
void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y);
// Dispatch and combine of the values of the choices, y[M] f32.
void fetch_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
void return_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
// Waits on the stream until all ranks have returned their rows.
void await_peer_rows(const Context& ctx);

}  // namespace slimexx::ops

// Routed rows to the ranks of their experts and back, by kernels that read and write the memory of
// all ranks of groups.ep (Context::groups.ep_memory, which has to be there). The number of rows
// that come stays on the device. CUDA alone.
//
// All ranks call, in this order: show_rows; what fetches and returns, as often as they like;
// await_peer_rows. What is shown lies in the region of ep_memory, and stays as it is in
// between, but for what is returned.
//
// Legend: T tokens of this rank, k experts of a token, R = T*k routed rows, C copies of experts, h
// copies held here, M the most rows that may come to them, H hidden size.
#pragma once
#include <cstdint>

#include "slimexx/ops/experts.h"

namespace slimexx::ops {

// Where the rows of the held copies are, at all ranks; from the arena.
struct PeerRuns {
  Tensor memory;
  int64_t first_copy = 0, num_copies = 0;
};
PeerRuns allocate_peer_runs(const Context& ctx, int64_t first_copy, int64_t num_copies);

struct PeerRows {
  RoutedRows routed;      // by C copies
  Tensor x, second = {};  // [T,H], for fetch_peer_rows
  Tensor returned;        // [R,H]: is filled by the experts' ranks
  // [T,k] f32: for fetch_peer_values, and what return_peer_values fills. Both, or neither.
  Tensor values = {}, returned_values = {};
};
// Shows this rank's rows, and waits on the stream until all have. offsets[h+1] i32: rows of each
// held copy, those of rank 0 first.
void show_rows(const Context& ctx, const PeerRuns& runs, Tensor offsets, const PeerRows& rows);
// y[M,H] gets the received rows of x, or of the second input, and behind them some zeros, as
// expert_matmul_backward_weight wants.
void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y, bool of_second = false);
// The rows of y go to their ranks' `returned`.
void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y);
// The same of the choices' values, y[M] f32.
void fetch_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
void return_peer_values(const Context& ctx, const PeerRuns& runs, Tensor y);
// Waits on the stream until all have returned what they do.
void await_peer_rows(const Context& ctx);

}  // namespace slimexx::ops

// Routed rows to the ranks of their experts and back, by kernels that read and write the memory of
// all ranks of groups.ep (Context::groups.ep_memory, which has to be there). The number of rows
// that come stays on the device. CUDA alone.
//
// All ranks call, in this order: show_rows, find_peer_runs, then fetch_peer_rows and
// return_peer_rows as often as they like, then await_peer_rows. After that returned_rows holds what
// came back, until the next show_rows.
//
// Legend: T tokens of this rank, k experts of a token, R = T*k routed rows, C copies of experts, h
// copies held here, M the most rows that may come to them, H hidden size.
#pragma once
#include <cstdint>

#include "slimexx/ops/experts.h"

namespace slimexx::ops {

// Of a window that serves `tokens` with `top_k` choices and rows of `width` elements.
int64_t peer_window_bytes(int64_t tokens, int64_t top_k, int64_t width);

// Shows x[T,H] and where `routed`, sorted by C copies, wants its rows.
void show_rows(const Context& ctx, Tensor x, const RoutedRows& routed);
// What came back for the R rows: [R,H], in this rank's window.
Tensor returned_rows(const Context& ctx, const RoutedRows& routed, int64_t width);

// Where the rows of the held copies are: from the arena.
struct PeerRuns {
  Tensor memory;
  int64_t first_copy = 0, num_copies = 0;
};
PeerRuns allocate_peer_runs(const Context& ctx, int64_t first_copy, int64_t num_copies);
// Waits on the stream for all ranks' show_rows. offsets[h+1] i32: rows of each held copy, those of
// rank 0 first.
void find_peer_runs(const Context& ctx, const PeerRuns& runs, Tensor offsets);
// y[M,H] gets the received rows.
void fetch_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y);
// The rows of y go to where their ranks have them as returned.
void return_peer_rows(const Context& ctx, const PeerRuns& runs, Tensor y);
// Waits on the stream for all ranks' return_peer_rows.
void await_peer_rows(const Context& ctx);

}  // namespace slimexx::ops

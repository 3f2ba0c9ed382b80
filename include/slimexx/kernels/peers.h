// Memory of devices that reach each other (NVLink): kernels of every rank read and write the
// windows of all.
//
// A window begins with kPeerControlBytes of control. What lies behind is the callers'. At most
// kMostPeers ranks. Nothing is allocated, nothing waits on the host; every function queues its work
// on `stream` and returns null, or the fault as a static text. Launches can be recorded.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"

namespace slimexx::kernels {

struct PeerWindows {
  char* at[kMostPeers] = {};  // by rank, as this device addresses them; 256-byte aligned
  int rank = 0, size = 0;
  // In host memory that devices read: not 0 ends every wait at once. What is computed behind such
  // a wait means nothing.
  const int* cancelled = nullptr;
  // Whether the ranks' launches run beside each other. If not (all share one stream), nothing
  // waits: who launches sees to the order.
  bool waits = true;
};

// Returns, on the stream, when what each rank had queued before its own call is done and seen by
// all. Every rank queues the same number of these, and of the functions below that wait.
[[nodiscard]] const char* queue_peer_barrier(const PeerWindows& windows, cudaStream_t stream);

// ---- Rows of tokens to the ranks of their experts, and back ----
//
// Each rank has routed rows, sorted by copies of experts (experts.h): row i of copy c is
// offsets[c] + i. The holder of a copy has the rows of all ranks for it: by copy, of a copy by
// rank, of a rank as they stand there. Such a run is (local copy, rank); run q = copy * ranks +
// rank.

// What a rank shows to the others: its offsets, and three arrays in its window from kShownRowsBegin
// on.
struct ShownRows {
  int64_t tokens_at = 0;    // [rows] i32: the token of a routed row
  int64_t inputs_at = 0;    // [tokens, width] bf16
  int64_t returned_at = 0;  // [rows, width] bf16: filled by the holders
};
// Fills the window's own tokens, inputs and offsets. `inputs_bytes` in multiples of 16.
[[nodiscard]] const char* show_rows(const PeerWindows& windows, const ShownRows& shown,
                                    const int32_t* offsets, int64_t copies, const int32_t* tokens,
                                    int64_t rows, const void* inputs, int64_t inputs_bytes,
                                    cudaStream_t stream);

// Where the rows of the local copies are. `memory`: 16-byte aligned, of peer_runs_bytes.
struct PeerRuns {
  void* memory = nullptr;
  int64_t first_copy = 0, copies = 0;  // held here
};
int64_t peer_runs_bytes(int64_t copies, int64_t ranks);
// Waits until all have shown their rows; then finds the runs, and offsets [copies + 1] of the local
// copies' rows.
[[nodiscard]] const char* find_peer_runs(const PeerWindows& windows, const PeerRuns& runs,
                                         int32_t* offsets, cudaStream_t stream);
// y [received, width] bf16 gets the inputs of the received rows; then, of y, what returned holds at
// their ranks. y has room for `most` rows. Width: a multiple of 8.
[[nodiscard]] const char* fetch_peer_rows(const PeerWindows& windows, const PeerRuns& runs, void* y,
                                          int64_t most, int64_t width, cudaStream_t stream);
[[nodiscard]] const char* return_peer_rows(const PeerWindows& windows, const PeerRuns& runs,
                                           const void* y, int64_t most, int64_t width,
                                           cudaStream_t stream);

}  // namespace slimexx::kernels

// Communication between devices that access each other's memory over NVLink.
//
// Each rank provides two pieces of memory: kPeerControlBytes of control memory, used only by these
// functions and zero at first, and a region for the caller's data. At most kMostPeers ranks. No
// function allocates or makes the host wait; each queues its work on `stream` and returns null, or
// the fault as a static text. Launches can be recorded in graphs.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"
#include "slimexx/kernels/rank_sum.h"

namespace slimexx::kernels {

struct PeerRegions {
  // By rank: addresses on this device, 256-byte aligned.
  char* control[kMostPeers] = {};
  char* region[kMostPeers] = {};
  int rank = 0, size = 0;
  // In host memory that devices can read. A value other than 0 ends all waits; results of later
  // kernels are then undefined.
  const int* cancelled = nullptr;
  // Whether the launches of the ranks run concurrently. If not (all share one stream), nothing
  // waits, and the caller orders the launches.
  bool waits = true;
};

// A barrier on the stream: later work starts when everything that each rank queued before its own
// call has finished and is visible to all ranks. All ranks must make equally many calls of this
// function, and of find_peer_runs, which is a barrier too.
[[nodiscard]] const char* queue_peer_barrier(const PeerRegions& ranks, cudaStream_t stream);

// ---- Sums and gathers ----
//
// All ranks call with the same types and ranges, which do not overlap. `place`: offset of this
// rank's array in its region, in bytes; it may differ between ranks. An array is in use from the
// first rank's call until the last rank's call has finished. Small messages of bf16 words between
// up to eight ranks use the low-latency protocol in the control memory
// (kernels/ranks/peer_mail.cu). The functions return an error if `waits` is false.

struct PeerRange {
  int64_t begin = 0, end = 0;
};
struct PeerRanges {
  PeerRange of[kMostPeers];  // by rank
};

// Reduce-scatter: result[i - begin] = the sum in rank order of element i of all ranks' arrays, for
// i in this rank's range. bf16 is added in f32 and rounded once. `result` may be this rank's range
// of its array.
[[nodiscard]] const char* sum_peer_terms(const PeerRegions& ranks, int64_t place, void* result,
                                         RankTerm type, const PeerRanges& elements,
                                         cudaStream_t stream);
// All-reduce: like sum_peer_terms, for all elements [0, n) on every rank. `result` must not be in
// this rank's array.
[[nodiscard]] const char* sum_peer_terms_to_all(const PeerRegions& ranks, int64_t place,
                                                void* result, RankTerm type, int64_t n,
                                                cudaStream_t stream);
// All-gather: on every rank, the range of rank r in the array receives the `share` of rank r.
// `share` may be this rank's range of its array.
[[nodiscard]] const char* gather_peer_shares(const PeerRegions& ranks, int64_t place,
                                             const void* share, const PeerRanges& bytes,
                                             cudaStream_t stream);

// ---- Dispatch and combine of routed rows ----
//
// Each rank has routed rows, sorted by physical expert (experts.h calls it a copy): row i of copy c
// is offsets[c] + i. The rank that holds a copy receives the rows of all ranks for it, ordered by
// copy, then by sender, then by the sender's order. The rows of one copy from one rank are a run:
// run q = copy * ranks + rank.

// The arrays that a rank publishes, as offsets in bytes into its region. The data must be complete
// when the rank calls find_peer_runs, and must stay until the next barrier.
struct ShownRows {
  static constexpr int kMostInputs = 2;
  int64_t offsets_at = 0;               // [copies + 1] i32
  int64_t rows_at = 0;                  // [tokens, top_k] i32: the routed row of a choice
  int64_t tokens = 0, top_k = 0;        // top_k: the same on all ranks, at most kMostRoutedTo
  int64_t inputs_at[kMostInputs] = {};  // [tokens, width] bf16 each
  int64_t returned_at = 0;              // [rows, width] bf16: written by the holders
  int64_t values_at = 0;                // [tokens, top_k] f32
  int64_t returned_values_at = 0;       // [tokens, top_k] f32: written by the holders
};
// Needed only if ranks do not wait for one another: call it on every rank before find_peer_runs.
[[nodiscard]] const char* show_rows(const PeerRegions& ranks, const ShownRows& shown,
                                    cudaStream_t stream);

// The runs that this rank receives. `memory`: peer_runs_bytes() bytes, 16-byte aligned.
struct PeerRuns {
  void* memory = nullptr;
  int64_t first_copy = 0, copies = 0;  // held by this rank
};
constexpr int64_t peer_runs_bytes(int64_t copies, int64_t ranks) {
  return static_cast<int64_t>(sizeof(ShownRows)) * ranks + (2 * copies * ranks + 1) * 4;
}
// Publishes this rank's rows and waits until all ranks have done so. Then finds the runs, and
// writes offsets [copies + 1] of the local copies' received rows.
[[nodiscard]] const char* find_peer_runs(const PeerRegions& ranks, const ShownRows& shown,
                                         const PeerRuns& runs, int32_t* offsets,
                                         cudaStream_t stream);
// Dispatch writes the received rows of `input` to y [received, width] bf16; combine sends the rows
// of y back to their ranks. y has room for `most` rows. Dispatch sets up to kReadBehindExperts rows
// after the received ones to zero. If more than `most` rows arrive, the kernels trap; with `most` =
// 0 nothing is launched. Width: a multiple of 8; arrays in regions are 16-byte aligned.
[[nodiscard]] const char* fetch_peer_rows(const PeerRegions& ranks, const PeerRuns& runs, int input,
                                          void* y, int64_t most, int64_t width,
                                          cudaStream_t stream);
[[nodiscard]] const char* return_peer_rows(const PeerRegions& ranks, const PeerRuns& runs,
                                           const void* y, int64_t most, int64_t width,
                                           cudaStream_t stream);
// Dispatch and combine of one f32 per row, y [received].
[[nodiscard]] const char* fetch_peer_values(const PeerRegions& ranks, const PeerRuns& runs,
                                            float* y, int64_t most, cudaStream_t stream);
[[nodiscard]] const char* return_peer_values(const PeerRegions& ranks, const PeerRuns& runs,
                                             const float* y, int64_t most, cudaStream_t stream);

}  // namespace slimexx::kernels

// Memory of devices that reach each other (NVLink): kernels of every rank read and write that of
// all.
//
// A rank has two pieces: kPeerControlBytes of control, which are these functions' own and zero at
// first, and a region that is the callers'. At most kMostPeers ranks. Nothing is allocated, nothing
// waits on the host; every function queues its work on `stream` and returns null, or the fault as a
// static text. Launches can be recorded.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "slimexx/kernels/limits.h"
#include "slimexx/kernels/rank_sum.h"

namespace slimexx::kernels {

struct PeerRegions {
  // By rank, as this device addresses them; 256-byte aligned.
  char* control[kMostPeers] = {};
  char* region[kMostPeers] = {};
  int rank = 0, size = 0;
  // In host memory that devices read: not 0 ends every wait at once. What is computed behind such
  // a wait means nothing.
  const int* cancelled = nullptr;
  // Whether the ranks' launches run beside each other. If not (all share one stream), nothing
  // waits: who launches sees to the order.
  bool waits = true;
};

// Returns, on the stream, when what each rank had queued before its own call is done and seen by
// all. Every rank queues the same number of these, and of find_peer_runs, which waits too.
[[nodiscard]] const char* queue_peer_barrier(const PeerRegions& ranks, cudaStream_t stream);

// ---- Sums and gathers ----
//
// Every rank calls with the same ranges, of which two have nothing in common, and types. `place`:
// of this rank's array, bytes from its region's start, which may differ by rank. An array is in use
// from the call of the first rank until that of the last is done, as seen from every stream. Few
// words of two bytes each go through the control instead, of up to eight ranks: what is faster is
// chosen. Ranks that do not wait for one another are refused.

struct PeerRange {
  int64_t begin = 0, end = 0;
};
struct PeerRanges {
  PeerRange of[kMostPeers];  // by rank
};

// result[i - begin] = the sum over ranks, from the first to the last, of element i of their arrays,
// for i in this rank's range; bf16 is added in f32 and rounded once. `result` may be that range of
// this rank's array.
[[nodiscard]] const char* sum_peer_terms(const PeerRegions& ranks, int64_t place, void* result,
                                         RankTerm type, const PeerRanges& elements,
                                         cudaStream_t stream);
// The same of all elements [0, n) on every rank. `result` lies outside of this rank's array.
[[nodiscard]] const char* sum_peer_terms_to_all(const PeerRegions& ranks, int64_t place,
                                                void* result, RankTerm type, int64_t n,
                                                cudaStream_t stream);
// The array's bytes of each range are those of that rank's `share`, on all ranks. `share` may be
// that range of this rank's array.
[[nodiscard]] const char* gather_peer_shares(const PeerRegions& ranks, int64_t place,
                                             const void* share, const PeerRanges& bytes,
                                             cudaStream_t stream);

// ---- Rows of tokens to the ranks of their experts, and back ----
//
// Each rank has routed rows, sorted by copies of experts (experts.h): row i of copy c is
// offsets[c] + i. The holder of a copy has the rows of all ranks for it: by copy, of a copy by
// rank, of a rank as they stand there. Such a run is (local copy, rank); run q = copy * ranks +
// rank.

// What a rank shows to the others, by bytes from its region's start: what is there when all have
// called find_peer_runs, and stays until all have met again behind it.
struct ShownRows {
  static constexpr int kMostInputs = 2;
  int64_t offsets_at = 0;               // [copies + 1] i32
  int64_t rows_at = 0;                  // [tokens, top_k] i32: the routed row of a choice
  int64_t tokens = 0, top_k = 0;        // top_k: of all ranks alike, at most kMostRoutedTo
  int64_t inputs_at[kMostInputs] = {};  // [tokens, width] bf16 each
  int64_t returned_at = 0;              // [rows, width] bf16: filled by the holders
  int64_t values_at = 0;                // [tokens, top_k] f32
  int64_t returned_values_at = 0;       // [tokens, top_k] f32: filled by the holders
};
// Where ranks do not wait for one another in find_peer_runs: before it, and before they meet.
[[nodiscard]] const char* show_rows(const PeerRegions& ranks, const ShownRows& shown,
                                    cudaStream_t stream);

// Where the rows of the local copies are. `memory`: 16-byte aligned, of peer_runs_bytes.
struct PeerRuns {
  void* memory = nullptr;
  int64_t first_copy = 0, copies = 0;  // held here
};
constexpr int64_t peer_runs_bytes(int64_t copies, int64_t ranks) {
  return static_cast<int64_t>(sizeof(ShownRows)) * ranks + (2 * copies * ranks + 1) * 4;
}
// Shows this rank's rows and waits until all have shown theirs; then finds the runs, and offsets
// [copies + 1] of the local copies' rows.
[[nodiscard]] const char* find_peer_runs(const PeerRegions& ranks, const ShownRows& shown,
                                         const PeerRuns& runs, int32_t* offsets,
                                         cudaStream_t stream);
// y [received, width] bf16 gets the received rows of that input; then, of y, what is returned goes
// to its ranks. y has room for `most` rows; the next kReadBehindExperts behind the received ones,
// if there are, become zero. If more than `most` come, the kernels trap. Width: a multiple of 8;
// regions' arrays are 16-byte aligned.
[[nodiscard]] const char* fetch_peer_rows(const PeerRegions& ranks, const PeerRuns& runs, int input,
                                          void* y, int64_t most, int64_t width,
                                          cudaStream_t stream);
[[nodiscard]] const char* return_peer_rows(const PeerRegions& ranks, const PeerRuns& runs,
                                           const void* y, int64_t most, int64_t width,
                                           cudaStream_t stream);
// The same of one f32 a row, y [received].
[[nodiscard]] const char* fetch_peer_values(const PeerRegions& ranks, const PeerRuns& runs,
                                            float* y, int64_t most, cudaStream_t stream);
[[nodiscard]] const char* return_peer_values(const PeerRegions& ranks, const PeerRuns& runs,
                                             const float* y, int64_t most, cudaStream_t stream);

}  // namespace slimexx::kernels

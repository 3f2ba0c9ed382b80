// Sums and gathers between ranks, one launch each. A sum reads the terms in place, and a gather
// writes the shares to their destination, without further copies. A thread block waits only for the
// thread blocks of the same index on the other ranks.
//
// A thread has loads from all ranks in flight at once, so that all links are busy. The order of
// additions is fixed and independent of the order of arrival.
#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "kernels/common/sizes.h"
#include "kernels/ranks/peer_barrier.cuh"
#include "kernels/ranks/peer_mail.h"
#include "kernels/ranks/rank_terms.cuh"

namespace slimexx::kernels {
namespace {

using namespace peers;
using namespace rank_terms;

constexpr int kThreads = 512;
constexpr int64_t kBlockBytes = kThreads * 16;  // minimum bytes of a range per thread block

template <class P>
__device__ __forceinline__ P& piece_at(const void* array, int64_t i) {
  return static_cast<P*>(const_cast<void*>(array))[i];
}

// Sums pieces [0, n), which start `at` bytes after the beginning of each of `arrays`. kRanks: the
// number of ranks, or 0 for any number.
template <class T, int kCount, int kRanks>
__device__ __forceinline__ void add_pieces(char* const* arrays, int ranks, int64_t at, T* result,
                                           int64_t n) {
  using P = Piece<T, kCount>;
  constexpr int kUnroll = kRanks == 0 ? 4 : kRanks >= 8 ? 1 : 8 / kRanks;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t first = blockIdx.x * int64_t{kThreads} + threadIdx.x; first < n;
       first += step * kUnroll) {
    PieceSum<T, kCount> sums[kUnroll];
    if constexpr (kRanks > 0) {
      P terms[kRanks][kUnroll];
#pragma unroll
      for (int r = 0; r < kRanks; ++r)
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
          if (first + u * step < n) terms[r][u] = piece_at<P>(arrays[r] + at, first + u * step);
#pragma unroll
      for (int r = 0; r < kRanks; ++r)
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) sums[u].take(terms[r][u], r == 0);
    } else {
      for (int r = 0; r < ranks; ++r) {
        P terms[kUnroll];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
          if (first + u * step < n) terms[u] = piece_at<P>(arrays[r] + at, first + u * step);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) sums[u].take(terms[u], r == 0);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * step < n) piece_at<P>(result, first + u * step) = sums[u].round();
  }
}

template <class T, int kRanks>
__global__ void __launch_bounds__(kThreads)
    sum_peers_kernel(const PeerRegions p, int64_t place, T* result, PeerRange own) {
  __shared__ char* arrays[kMostPeers];
  begin_blocks(p, place, arrays);
  constexpr int kWide = 16 / sizeof(T);
  const int64_t at = own.begin * static_cast<int64_t>(sizeof(T)), n = own.end - own.begin;
  bool is_wide = at % 16 == 0 && reinterpret_cast<uintptr_t>(result) % 16 == 0;
  for (int r = 0; r < p.size; ++r)
    is_wide = is_wide && reinterpret_cast<uintptr_t>(arrays[r]) % 16 == 0;
  const int64_t pieces = is_wide ? n / kWide : 0, done = pieces * kWide;
  add_pieces<T, kWide, kRanks>(arrays, p.size, at, result, pieces);
  add_pieces<T, 1, kRanks>(arrays, p.size, at + done * static_cast<int64_t>(sizeof(T)),
                           result + done, n - done);
  end_blocks(p);
}

// Writes units [0, n) of `share` to every rank's array, `at` bytes after its beginning.
template <class Unit>
__device__ __forceinline__ void spread_units(const PeerRegions& p, char* const* arrays, int64_t at,
                                             const char* share, int64_t n) {
  constexpr int kUnroll = 4;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t first = blockIdx.x * int64_t{kThreads} + threadIdx.x; first < n;
       first += step * kUnroll) {
    Unit units[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * step < n) units[u] = piece_at<const Unit>(share, first + u * step);
    for (int i = 1; i <= p.size; ++i) {
      char* there = arrays[rank_after(p, i)] + at;
      if (there == share) continue;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + u * step < n) piece_at<Unit>(there, first + u * step) = units[u];
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    gather_peers_kernel(const PeerRegions p, int64_t place, const char* share, PeerRange own) {
  __shared__ char* arrays[kMostPeers];
  begin_blocks(p, place, arrays);
  const int64_t n = own.end - own.begin;
  uintptr_t ends = reinterpret_cast<uintptr_t>(share) | static_cast<uintptr_t>(own.begin);
  for (int r = 0; r < p.size; ++r) ends |= reinterpret_cast<uintptr_t>(arrays[r]);
  const int64_t wide = ends % 16 == 0 ? n / 16 * 16 : 0;
  spread_units<int4>(p, arrays, own.begin, share, wide / 16);
  const int64_t words = ends % 4 == 0 ? (n - wide) / 4 * 4 : 0, done = wide + words;
  spread_units<int>(p, arrays, own.begin + wide, share + wide, words / 4);
  spread_units<char>(p, arrays, own.begin + done, share + done, n - done);
  end_blocks(p);
}

// Returns the same number on all ranks.
unsigned count_blocks(const PeerRegions& p, const PeerRanges& ranges, int64_t element_bytes) {
  int64_t most = 0;
  for (int r = 0; r < p.size; ++r) most = std::max(most, ranges.of[r].end - ranges.of[r].begin);
  const int64_t blocks = divide_up(most * element_bytes, kBlockBytes);
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, kMostPeerBlocks));
}

const char* find_fault(const PeerRegions& p, int64_t place, const void* own,
                       const PeerRanges& ranges) {
  if (const char* fault = peers::find_fault(p)) return fault;
  if (!p.waits)
    return "peer exchange: the launches of the ranks must run concurrently (PeerRegions::waits)";
  for (int r = 0; r < p.size; ++r)
    if (ranges.of[r].begin < 0 || ranges.of[r].end < ranges.of[r].begin)
      return "peer exchange: a range begins below 0 or ends before it begins";
  const PeerRange& range = ranges.of[p.rank];
  return place < 0 || place >= int64_t{1} << (64 - kCallBits) ||
                 (own == nullptr && range.end > range.begin)
             ? "peer exchange: no array"
             : nullptr;
}

template <class T>
const char* sum_terms(const PeerRegions& p, int64_t place, void* result, const PeerRanges& elements,
                      cudaStream_t stream) {
  if (!is_aligned(result, sizeof(T)) || place % static_cast<int64_t>(sizeof(T)) != 0)
    return "peer exchange: an array is not aligned to its element size";
  if (std::is_same_v<T, __nv_bfloat16> && goes_by_mail(p, elements))
    return sum_by_mail(p, elements, p.region[p.rank] + place, result, stream);
  auto* kernel = sum_peers_kernel<T, 0>;
  if (p.size == 2) kernel = sum_peers_kernel<T, 2>;
  if (p.size == 4) kernel = sum_peers_kernel<T, 4>;
  if (p.size == 8) kernel = sum_peers_kernel<T, 8>;
  kernel<<<count_blocks(p, elements, sizeof(T)), kThreads, 0, stream>>>(
      p, place, static_cast<T*>(result), elements.of[p.rank]);
  return name_error(cudaGetLastError());
}

// Converts byte ranges to ranges of two-byte words; empty if a range does not begin and end at a
// whole word.
PeerRanges words_of(const PeerRegions& ranks, const PeerRanges& bytes) {
  PeerRanges words;
  for (int r = 0; r < ranks.size; ++r) {
    if (bytes.of[r].begin % 2 != 0 || bytes.of[r].end % 2 != 0) return {};
    words.of[r] = {bytes.of[r].begin / 2, bytes.of[r].end / 2};
  }
  return words;
}

}  // namespace

const char* sum_peer_terms(const PeerRegions& ranks, int64_t place, void* result, RankTerm type,
                           const PeerRanges& elements, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, place, result, elements)) return fault;
  switch (type) {
    case RankTerm::kF32:
      return sum_terms<float>(ranks, place, result, elements, stream);
    case RankTerm::kBf16:
      return sum_terms<__nv_bfloat16>(ranks, place, result, elements, stream);
    case RankTerm::kF64:
      return sum_terms<double>(ranks, place, result, elements, stream);
  }
  return "peer exchange: the element type is not supported";
}

const char* sum_peer_terms_to_all(const PeerRegions& ranks, int64_t place, void* result,
                                  RankTerm type, int64_t n, cudaStream_t stream) {
  PeerRanges all;
  for (int r = 0; r < std::min<int>(ranks.size, kMostPeers); ++r) all.of[r] = {0, n};
  return sum_peer_terms(ranks, place, result, type, all, stream);
}

const char* gather_peer_shares(const PeerRegions& ranks, int64_t place, const void* share,
                               const PeerRanges& bytes, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks, place, share, bytes)) return fault;
  char* own = ranks.region[ranks.rank] + place;
  const PeerRanges words = words_of(ranks, bytes);
  if (goes_by_mail(ranks, words)) return gather_by_mail(ranks, words, own, share, stream);
  gather_peers_kernel<<<count_blocks(ranks, bytes, 1), kThreads, 0, stream>>>(
      ranks, place, static_cast<const char*>(share), bytes.of[ranks.rank]);
  return name_error(cudaGetLastError());
}

}  // namespace slimexx::kernels

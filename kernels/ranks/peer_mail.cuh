// Mail between ranks: a line of 16 bytes is 4 words of bf16 and twice the number of the call, one
// in each half, since 8 bytes arrive whole. Who has read the number has read the words.
//
// A thread block has a box in its rank's control for the lines of every other rank's block of that
// number, twice: calls take turns. When it sends its lines of call c, each other rank has sent
// those of c - 1, and so is done with reading c - 2, whose room is now overwritten. That holds
// where all threads of a block have read their lines of a call before any sends those of the next.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/ranks/peer_barrier.cuh"

namespace slimexx::kernels::peers {

inline constexpr int kMostMailRanks = 8;

// Thread blocks that have boxes of so many lines in `bytes` of control.
inline int64_t most_mail_blocks(int64_t bytes, int ranks, int64_t lines) {
  return std::min<int64_t>(bytes / (2 * ranks * lines * static_cast<int64_t>(sizeof(uint4))),
                           kMostPeerBlocks);
}

// Where rank `to` reads what `from` sends to its thread block of this one's number. Boxes have
// `lines` each and begin at `place` of the control.
__device__ __forceinline__ uint4* mail_box(const PeerRegions& p, int place, int lines, int to,
                                           int from, unsigned call) {
  const int box = (static_cast<int>(blockIdx.x) * 2 + static_cast<int>(call % 2)) * p.size + from;
  return reinterpret_cast<uint4*>(p.control[to] + place) + int64_t{box} * lines;
}

__device__ __forceinline__ void send_line(uint4* line, uint2 words, unsigned call) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(line), "r"(words.x),
               "r"(call), "r"(words.y)
               : "memory");
}
__device__ __forceinline__ uint4 read_line(const uint4* line) {
  uint4 words;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(line)
               : "memory");
  return words;
}
__device__ __forceinline__ bool is_of(const uint4& line, unsigned call) {
  return line.y == call && line.w == call;
}

// The other ranks' lines at line_of(rank), awaited together.
template <int kMost, class LineOf>
__device__ __forceinline__ void await_lines(const PeerRegions& p, uint4 (&lines)[kMost],
                                            unsigned call, const LineOf& line_of) {
  bool are_there = false;
  for (int tries = 1; !are_there; ++tries) {
#pragma unroll
    for (int r = 0; r < kMost; ++r)
      if (r < p.size && r != p.rank) lines[r] = read_line(line_of(r));
    are_there = true;
#pragma unroll
    for (int r = 0; r < kMost; ++r)
      if (r < p.size && r != p.rank) are_there = are_there && is_of(lines[r], call);
    if (was_cancelled(p, tries)) return;
  }
}

}  // namespace slimexx::kernels::peers

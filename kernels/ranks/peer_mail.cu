// The low-latency protocol, like NCCL's LL: a line of 16 bytes holds 4 bf16
// words and the number of the call twice, once in each half, because 8 bytes arrive as a whole. The
// receiver polls the numbers and needs no barrier. A rank's control memory has room for the lines
// of every other rank for two calls, which alternate. When a thread block sends the lines of call
// c, all other ranks have sent those of c - 1, so they have read those of c - 2, which are now
// overwritten.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "kernels/ranks/peer_barrier.cuh"
#include "kernels/ranks/peer_mail.h"
#include "kernels/ranks/rank_terms.cuh"

namespace slimexx::kernels::peers {
namespace {

using namespace rank_terms;

constexpr int kThreads = 512, kUnroll = 2, kLineWords = 4, kLineBytes = 8;
constexpr int kBlockLines = kThreads * kUnroll;  // most lines per thread block
constexpr int kFewLines = 128;  // lines per thread block before another block is used
using Words = Piece<__nv_bfloat16, kLineWords>;

int64_t most_blocks(int ranks) {
  const int64_t bytes = int64_t{2} * ranks * kBlockLines * static_cast<int64_t>(sizeof(uint4));
  return std::min<int64_t>((kPeerControlBytes - kMailAt) / bytes, kMostPeerBlocks);
}

// The buffer for lines from rank `from` in the control memory of rank `to`, for the thread block of
// this index and this call.
__device__ __forceinline__ uint4* mail_box(const PeerRegions& p, int to, int from, unsigned call) {
  const int box = (static_cast<int>(blockIdx.x) * 2 + static_cast<int>(call % 2)) * p.size + from;
  return reinterpret_cast<uint4*>(p.control[to] + kMailAt) + int64_t{box} * kBlockLines;
}
__device__ __forceinline__ void send_line(uint4* box, uint2 words, unsigned call) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(box), "r"(words.x),
               "r"(call), "r"(words.y)
               : "memory");
}
__device__ __forceinline__ uint4 read_line(const uint4* box) {
  uint4 line;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.x), "=r"(line.y), "=r"(line.z), "=r"(line.w)
               : "l"(box)
               : "memory");
  return line;
}

// Whether the line is complete and aligned, so that one 8-byte access can move it. Otherwise bytes
// are moved one by one; words after n are sent as zeros and not stored.
__device__ __forceinline__ bool is_whole(const void* at, int64_t line, int64_t n) {
  return (line + 1) * kLineWords <= n && reinterpret_cast<uintptr_t>(at) % sizeof(uint2) == 0;
}
__device__ __forceinline__ uint2 load_line(const void* words, int64_t line, int64_t n) {
  const auto* at = static_cast<const unsigned char*>(words) + line * kLineBytes;
  if (is_whole(at, line, n)) return *reinterpret_cast<const uint2*>(at);
  uint2 some{};
  for (int i = 0; i < kLineBytes && line * kLineBytes + i < 2 * n; ++i)
    reinterpret_cast<unsigned char*>(&some)[i] = at[i];
  return some;
}
__device__ __forceinline__ void store_line(void* words, int64_t line, int64_t n, uint2 some) {
  auto* at = static_cast<unsigned char*>(words) + line * kLineBytes;
  if (is_whole(at, line, n)) {
    *reinterpret_cast<uint2*>(at) = some;
    return;
  }
  for (int i = 0; i < kLineBytes && line * kLineBytes + i < 2 * n; ++i)
    at[i] = reinterpret_cast<const unsigned char*>(&some)[i];
}

// The lines of a range that a thread block sends: from `first` on, at least one. If the range has
// no line for this block, it sends one empty line: a rank that receives no line in a call could not
// tell how far the sender is, and could overwrite buffers that the sender has yet to read.
struct BlockLines {
  int64_t first, n;
  int count;
  __device__ BlockLines(const PeerRange& range, int lines_of_block)
      : first(int64_t{blockIdx.x} * lines_of_block), n(range.end - range.begin) {
    const int64_t behind = divide_up(n, kLineWords) - first;
    count = static_cast<int>(max(int64_t{1}, min(behind, int64_t{lines_of_block})));
  }
};

// Sends each rank its range of `words`, then sums the lines received for this rank's range. kMost:
// upper bound on the ranks; lines of all ranks are polled together.
template <int kMost>
__global__ void __launch_bounds__(kThreads)
    sum_by_mail_kernel(const __grid_constant__ PeerRegions p,
                       const __grid_constant__ PeerRanges ranges, const __nv_bfloat16* words,
                       __nv_bfloat16* result, int lines_of_block) {
  enter_kernel();
  BlockControl* control = block_control(p, p.rank);
  const unsigned call = control->next_mail();
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = 1; i < p.size; ++i) {
    const int to = rank_after(p, i);
    const BlockLines sent(ranges.of[to], lines_of_block);
    uint4* box = mail_box(p, to, p.rank, call);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = thread + u * kThreads;
      if (at < sent.count)
        send_line(box + at, load_line(words + ranges.of[to].begin, sent.first + at, sent.n), call);
    }
  }
  const BlockLines own(ranges.of[p.rank], lines_of_block);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = thread + u * kThreads;
    if (at >= own.count) break;
    const uint2 term = load_line(words + ranges.of[p.rank].begin, own.first + at, own.n);
    uint4 lines[kMost];
    bool is_there = false;
    for (int tries = 1; !is_there; ++tries) {
#pragma unroll
      for (int r = 0; r < kMost; ++r)
        if (r < p.size && r != p.rank) lines[r] = read_line(mail_box(p, p.rank, r, call) + at);
      is_there = true;
#pragma unroll
      for (int r = 0; r < kMost; ++r)
        if (r < p.size && r != p.rank)
          is_there = is_there && lines[r].y == call && lines[r].w == call;
      if (was_cancelled(p, tries)) break;
    }
    PieceSum<__nv_bfloat16, kLineWords> sum;
#pragma unroll
    for (int r = 0; r < kMost; ++r) {
      if (r >= p.size) break;
      const uint2 of_rank = r == p.rank ? term : make_uint2(lines[r].x, lines[r].z);
      sum.take(*reinterpret_cast<const Words*>(&of_rank), r == 0);
    }
    const Words rounded = sum.round();
    store_line(result, own.first + at, own.n, *reinterpret_cast<const uint2*>(&rounded));
  }
  __syncthreads();
  if (threadIdx.x == 0) control->mails = call;
}

// `share` is this rank's range of `words`, or a copy of it.
__global__ void __launch_bounds__(kThreads)
    gather_by_mail_kernel(const __grid_constant__ PeerRegions p,
                          const __grid_constant__ PeerRanges ranges, __nv_bfloat16* words,
                          const __nv_bfloat16* share, int lines_of_block) {
  enter_kernel();
  BlockControl* control = block_control(p, p.rank);
  const unsigned call = control->next_mail();
  const int thread = static_cast<int>(threadIdx.x);
  const BlockLines own(ranges.of[p.rank], lines_of_block);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = thread + u * kThreads;
    if (at >= own.count) break;
    const uint2 line = load_line(share, own.first + at, own.n);
    for (int i = 1; i < p.size; ++i)
      send_line(mail_box(p, rank_after(p, i), p.rank, call) + at, line, call);
    __nv_bfloat16* there = words + ranges.of[p.rank].begin;
    if (there != share) store_line(there, own.first + at, own.n, line);
  }
  for (int r = 0; r < p.size; ++r) {
    if (r == p.rank) continue;
    const BlockLines theirs(ranges.of[r], lines_of_block);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int at = thread + u * kThreads;
      if (at >= theirs.count) break;
      uint4 line = read_line(mail_box(p, p.rank, r, call) + at);
      for (int tries = 1; (line.y != call || line.w != call) && !was_cancelled(p, tries); ++tries)
        line = read_line(mail_box(p, p.rank, r, call) + at);
      store_line(words + ranges.of[r].begin, theirs.first + at, theirs.n,
                 make_uint2(line.x, line.z));
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) control->mails = call;
}

int64_t most_lines(const PeerRegions& p, const PeerRanges& ranges) {
  int64_t most = 0;
  for (int r = 0; r < p.size; ++r)
    most = std::max(most, divide_up(ranges.of[r].end - ranges.of[r].begin, kLineWords));
  return most;
}

// The grid is the same on all ranks.
struct MailGrid {
  int blocks, lines_of_block;
  MailGrid(const PeerRegions& p, const PeerRanges& ranges) {
    const int64_t lines = most_lines(p, ranges);
    const int64_t most = std::min(most_blocks(p.size), divide_up(lines, kFewLines));
    lines_of_block = static_cast<int>(divide_up(lines, most));
    blocks = static_cast<int>(divide_up(lines, int64_t{lines_of_block}));
  }
  LaunchShape shape() const {
    return {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads};
  }
};

constexpr int kMostMailRanks = 8;

}  // namespace

bool goes_by_mail(const PeerRegions& p, const PeerRanges& ranges) {
  if (p.size < 2 || p.size > kMostMailRanks) return false;
  const int64_t lines = most_lines(p, ranges);
  return 0 < lines && lines <= most_blocks(p.size) * kBlockLines;
}

const char* sum_by_mail(const PeerRegions& p, const PeerRanges& ranges, const void* words,
                        void* result, cudaStream_t stream) {
  const MailGrid grid(p, ranges);
  auto* kernel = sum_by_mail_kernel<kMostMailRanks>;
  if (p.size == 2) kernel = sum_by_mail_kernel<2>;
  if (p.size == 3 || p.size == 4) kernel = sum_by_mail_kernel<4>;
  return name_error(launch_early(kernel, grid.shape(), stream, p, ranges,
                                 static_cast<const __nv_bfloat16*>(words),
                                 static_cast<__nv_bfloat16*>(result), grid.lines_of_block));
}

const char* gather_by_mail(const PeerRegions& p, const PeerRanges& ranges, void* words,
                           const void* share, cudaStream_t stream) {
  const MailGrid grid(p, ranges);
  return name_error(launch_early(gather_by_mail_kernel, grid.shape(), stream, p, ranges,
                                 static_cast<__nv_bfloat16*>(words),
                                 static_cast<const __nv_bfloat16*>(share), grid.lines_of_block));
}

}  // namespace slimexx::kernels::peers

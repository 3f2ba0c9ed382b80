// Mail: a line of 16 bytes is 4 bf16 terms and twice the number of the call, one in each half,
// since 8 bytes arrive whole. A rank has room in its control for one line of every other rank and
// place, twice: calls take turns. When a thread block sends its lines of call c, each other rank
// has sent those of c - 1, and so is done with reading c - 2, whose room is now overwritten.
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

constexpr int kThreads = 512, kUnroll = 2, kLineTerms = 4;
constexpr int kBlockLines = kThreads * kUnroll;  // at most
constexpr int kFewLines = 128;                   // of a thread block, before there are more
using Terms = Piece<__nv_bfloat16, kLineTerms>;

int64_t most_blocks(int ranks) {
  const int64_t bytes = int64_t{2} * ranks * kBlockLines * static_cast<int64_t>(sizeof(uint4));
  return std::min<int64_t>((kPeerControlBytes - kMailAt) / bytes, kMostPeerBlocks);
}

// Lines that `from` sends to `to`'s thread block of this number.
__device__ __forceinline__ uint4* mail_box(const PeerRegions& p, int to, int from, unsigned call) {
  const int box = (static_cast<int>(blockIdx.x) * 2 + static_cast<int>(call % 2)) * p.size + from;
  return reinterpret_cast<uint4*>(p.control[to] + kMailAt) + int64_t{box} * kBlockLines;
}
__device__ __forceinline__ void send_line(uint4* box, uint2 terms, unsigned call) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(box), "r"(terms.x),
               "r"(call), "r"(terms.y)
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

// Term n and what is behind are zero.
__device__ __forceinline__ uint2 load_terms(const __nv_bfloat16* terms, int64_t line, int64_t n) {
  const __nv_bfloat16* at = terms + line * kLineTerms;
  if ((line + 1) * kLineTerms <= n && reinterpret_cast<uintptr_t>(at) % sizeof(uint2) == 0)
    return *reinterpret_cast<const uint2*>(at);
  Terms some{};
  for (int i = 0; i < kLineTerms && line * kLineTerms + i < n; ++i) some.element[i] = at[i];
  return *reinterpret_cast<const uint2*>(&some);
}
__device__ __forceinline__ void store_terms(__nv_bfloat16* result, int64_t line, int64_t n,
                                            const Terms& sum) {
  __nv_bfloat16* at = result + line * kLineTerms;
  if ((line + 1) * kLineTerms <= n && reinterpret_cast<uintptr_t>(at) % sizeof(uint2) == 0) {
    *reinterpret_cast<Terms*>(at) = sum;
    return;
  }
  for (int i = 0; i < kLineTerms && line * kLineTerms + i < n; ++i) at[i] = sum.element[i];
}

// kMost: of ranks, whose lines are awaited together.
template <int kMost>
__global__ void __launch_bounds__(kThreads)
    sum_by_mail_kernel(const __grid_constant__ PeerRegions p, const __nv_bfloat16* terms,
                       __nv_bfloat16* result, int64_t n, int lines_of_block) {
  enter_layer_kernel();
  BlockControl* control = block_control(p, p.rank);
  const unsigned call = control->mails + 1;
  const int64_t begin = int64_t{blockIdx.x} * lines_of_block;
  const int count =
      static_cast<int>(min(int64_t{lines_of_block}, divide_up(n, kLineTerms) - begin));
  const int thread = static_cast<int>(threadIdx.x);
  uint2 own[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (thread + u * kThreads < count) own[u] = load_terms(terms, begin + thread + u * kThreads, n);
  for (int i = 1; i < p.size; ++i) {  // every rank begins with another one
    const int to = p.rank + i < p.size ? p.rank + i : p.rank + i - p.size;
    uint4* box = mail_box(p, to, p.rank, call);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (thread + u * kThreads < count) send_line(box + thread + u * kThreads, own[u], call);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int at = thread + u * kThreads;
    if (at >= count) break;
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
    PieceSum<__nv_bfloat16, kLineTerms> sum;
#pragma unroll
    for (int r = 0; r < kMost; ++r) {
      if (r >= p.size) break;
      const uint2 term = r == p.rank ? own[u] : make_uint2(lines[r].x, lines[r].z);
      sum.take(*reinterpret_cast<const Terms*>(&term), r == 0);
    }
    store_terms(result, begin + at, n, sum.round());
  }
  __syncthreads();
  if (threadIdx.x == 0) control->mails = call;
}

constexpr int kMostMailRanks = 8;

}  // namespace

bool goes_by_mail(const PeerRegions& p, RankTerm type, int64_t n) {
  return type == RankTerm::kBf16 && p.size > 1 && p.size <= kMostMailRanks && n > 0 &&
         divide_up(n, kLineTerms) <= most_blocks(p.size) * kBlockLines;
}

const char* sum_by_mail(const PeerRegions& p, const void* terms, void* result, int64_t n,
                        cudaStream_t stream) {
  if (!is_aligned(terms, sizeof(__nv_bfloat16)) || !is_aligned(result, sizeof(__nv_bfloat16)))
    return "peer exchange: an array does not start at an element";
  const int64_t lines = divide_up(n, kLineTerms);
  const int64_t most = std::min(most_blocks(p.size), divide_up(lines, kFewLines));
  const int64_t lines_of_block = divide_up(lines, most), blocks = divide_up(lines, lines_of_block);
  auto* kernel = sum_by_mail_kernel<kMostMailRanks>;
  if (p.size == 2) kernel = sum_by_mail_kernel<2>;
  if (p.size <= 4 && p.size > 2) kernel = sum_by_mail_kernel<4>;
  return name_error(
      launch_early(kernel, {.grid = dim3(static_cast<unsigned>(blocks)), .threads = kThreads},
                   stream, p, static_cast<const __nv_bfloat16*>(terms),
                   static_cast<__nv_bfloat16*>(result), n, static_cast<int>(lines_of_block)));
}

}  // namespace slimexx::kernels::peers

// What tensor-parallel ranks have of few rows becomes the residual stream and its norm in one
// kernel: a thread block sends its rank's terms of a row, adds those that come in rank order, and
// goes on as add_rms_norm_kernel does.
#include <algorithm>

#include "kernels/ranks/peer_mail.cuh"
#include "kernels/rows/norm_parts.cuh"

namespace slimexx::kernels {
namespace {

using namespace peers;
using namespace rows;

constexpr int kLineWords = 4, kLinesOfChunk = kChunk / kLineWords;
constexpr int kRowLines = 2048;

int64_t most_blocks(int ranks) {
  return most_mail_blocks(kPeerControlBytes - kMailedRowsAt, ranks, kRowLines);
}

// The sum of all ranks' chunks, of which this rank has `own`; the others' begin at line `line`.
template <int kMost>
__device__ __forceinline__ Chunk sum_chunks(const PeerRegions& p, const Chunk& own, int line,
                                            unsigned call) {
  uint4 lines[kLinesOfChunk][kMost];
#pragma unroll
  for (int l = 0; l < kLinesOfChunk; ++l)
    await_lines(p, lines[l], call, [&](int r) {
      return mail_box(p, kMailedRowsAt, kRowLines, p.rank, r, call) + line + l;
    });
  float sum[kChunk];
#pragma unroll
  for (int r = 0; r < kMost; ++r) {
    if (r >= p.size) break;
    const Chunk theirs{lines[0][r].x, lines[0][r].z, lines[1][r].x, lines[1][r].z};
    float term[kChunk];
    unpack(term, r == p.rank ? own : theirs);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum[i] = r == 0 ? term[i] : __fadd_rn(sum[i], term[i]);
  }
  return pack(sum);
}

template <int kChunks, bool kVector, bool kNorm, int kMost>
__global__ void __launch_bounds__(kMaxThreads)
    sum_add_rms_norm_kernel(const BranchNormArgs a, const __grid_constant__ PeerRegions p, int rows) {
  enter_kernel();
  __shared__ float shared[2][2][1][kMaxWarps];
  BlockControl* control = block_control(p, p.rank);
  unsigned call = control->mailed_rows;
  RowPart<kChunks> branch_norm{}, w{};
  if constexpr (kNorm) branch_norm = load_row<kChunks, kVector>(a.branch_norm, a.width);
  if (a.y != nullptr) w = load_row<kChunks, kVector>(a.w, a.width);
  for (int r = static_cast<int>(blockIdx.x); r < rows; r += static_cast<int>(gridDim.x)) {
    ++call;
    const int64_t row = int64_t{r} * a.width;
    auto branch = load_row<kChunks, kVector>(a.branch + row, a.width);
    for (int i = 1; i < p.size; ++i) {  // every rank begins with another one
      const int to = p.rank + i < p.size ? p.rank + i : p.rank + i - p.size;
      uint4* box = mail_box(p, kMailedRowsAt, kRowLines, to, p.rank, call);
#pragma unroll
      for (int j = 0; j < kChunks; ++j) {
        const int begin = chunk_begin(j);
        if (begin >= a.width) break;
#pragma unroll
        for (int l = 0; l < kLinesOfChunk; ++l)
          send_line(box + begin / kLineWords + l,
                    make_uint2(branch.chunk[j].pair[2 * l], branch.chunk[j].pair[2 * l + 1]), call);
      }
    }
    auto x = load_row<kChunks, kVector>(a.x + row, a.width);
#pragma unroll
    for (int j = 0; j < kChunks; ++j) {
      const int begin = chunk_begin(j);
      if (begin >= a.width) break;
      branch.chunk[j] = sum_chunks<kMost>(p, branch.chunk[j], begin / kLineWords, call);
    }
    __syncthreads();  // all have read their lines, and the sums of the row before
    add_and_normalise<kChunks, kVector, kNorm>(a, row, x, branch, branch_norm, w, shared[call % 2]);
  }
  if (threadIdx.x == 0) control->mailed_rows = call;
}

template <bool kNorm, int kMost>
struct Form {
  template <int kChunks, bool kVector>
  struct Kernel {
    static auto* get() { return sum_add_rms_norm_kernel<kChunks, kVector, kNorm, kMost>; }
  };
};

template <bool kNorm>
cudaError_t launch(const BranchNormArgs& args, const PeerRegions& p, int64_t rows, bool is_vector,
                   cudaStream_t stream) {
  const RowLayout layout = choose_row_layout(args.width);
  const dim3 grid = grid_of(std::min(rows, most_blocks(p.size)));
  const int count = static_cast<int>(rows);
  if (p.size == 2)
    return launch_by_layout<Form<kNorm, 2>::template Kernel>(layout, is_vector, 0, grid, stream,
                                                             args, p, count);
  return launch_by_layout<Form<kNorm, kMostMailRanks>::template Kernel>(layout, is_vector, 0, grid,
                                                                        stream, args, p, count);
}

}  // namespace

bool sums_in_norm(const PeerRegions& p, int64_t rows, int64_t width) {
  constexpr int64_t kTurns = 2;  // of a thread block: more are slower than two kernels
  return p.waits && p.size > 1 && p.size <= kMostMailRanks && width > 0 &&
         width <= kRowLines * kLineWords && rows > 0 && rows <= kTurns * most_blocks(p.size);
}

const char* sum_add_rms_norm(const PeerRegions& ranks, void* y, void* x_sum, const void* x,
                             const void* terms, const void* branch_norm, const void* w,
                             int64_t rows, int64_t width, float eps, cudaStream_t stream) {
  if (const char* fault = find_fault(ranks)) return fault;
  if (!sums_in_norm(ranks, rows, width)) return "a norm of peers' sums: too many rows, or too wide";
  if ((y == nullptr) != (w == nullptr)) return "a norm of peers' sums: y without weights";
  const bool is_vector = width % kChunk == 0 && has_aligned_rows(y) && has_aligned_rows(x_sum) &&
                         has_aligned_rows(x) && has_aligned_rows(terms) &&
                         has_aligned_rows(branch_norm) && has_aligned_rows(w);
  const BranchNormArgs args{static_cast<Bf16*>(y),
                         static_cast<Bf16*>(x_sum),
                         static_cast<const Bf16*>(x),
                         static_cast<const Bf16*>(terms),
                         static_cast<const Bf16*>(branch_norm),
                         static_cast<const Bf16*>(w),
                         static_cast<int>(width),
                         1.0f / static_cast<float>(width),
                         eps};
  return name_error(branch_norm != nullptr ? launch<true>(args, ranks, rows, is_vector, stream)
                                           : launch<false>(args, ranks, rows, is_vector, stream));
}

}  // namespace slimexx::kernels

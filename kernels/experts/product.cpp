// Checks the arguments of grouped products and chooses their tiles from the sizes alone.
#include "kernels/common/device.h"
#include "kernels/common/sizes.h"
#include "kernels/experts/variants.h"
#include "kernels/gemm/configs.h"

namespace slimexx::kernels {
namespace {

const char* find_fault(const GroupedRows& rows, int64_t n, int64_t k) {
  constexpr int64_t kMaxSize = INT32_MAX / 4;
  if (rows.experts < 1 || rows.experts > kMostExperts) {
    return "grouped gemm: the number of experts must be from 1 to 384";
  }
  if (rows.rows < 0 || n <= 0 || k <= 0 || rows.rows > kMaxSize || rows.experts * n > kMaxSize ||
      k > kMaxSize) {
    return "grouped gemm: rows must be at least 0, n and k at least 1; rows, experts * n and k < "
           "2^29";
  }
  if (n % 8 != 0 || k % 8 != 0) return "grouped gemm: n and k must be multiples of 8";
  return nullptr;
}

const char* find_fault(const GroupedGemmArgs& a) {
  if (const char* fault = find_fault(a.rows, a.n, a.k)) return fault;
  if (a.rows.rows == 0) return nullptr;
  if (a.one_x_row && a.rows.rows > a.rows.experts + 1) {
    return "grouped gemm: with one_x_row each expert may have at most one row";
  }
  if (a.x == nullptr || a.w == nullptr || a.y == nullptr || a.rows.offsets == nullptr) {
    return "grouped gemm: an operand is null";
  }
  if (!is_aligned(a.x, 16) || !is_aligned(a.w, 16) || !is_aligned(a.y, 16) ||
      !is_aligned(a.shared_w, 16)) {
    return "grouped gemm: operands must be 16-byte aligned";
  }
  return nullptr;
}

// Chooses the features per tile if each of `experts` experts has one tile of tokens. The time is
// that of the SM that streams the most weights, so this minimises the maximum number of weight rows
// per SM. Tiles have at least half of the largest size, because each tile has a fixed cost at its
// start and end.
int choose_tile_features(int64_t experts, int64_t n, int unit) {
  int best = 64;
  int64_t least = INT64_MAX;
  for (int rows = 64; rows >= 32; rows -= unit) {
    const int64_t most = divide_up(experts * divide_up(n, rows), kMultiprocessors) * rows;
    if (most < least) least = most, best = rows;
  }
  return best;
}

// Up to this many routed rows are assumed to go to different experts.
constexpr int64_t kDistinctRows = 16;

// A tile holds as many rows as an expert seldom exceeds under a random router. `unit`: granularity
// of a tile's features.
GemmConfig choose_config(const GroupedRows& rows, int64_t n, int unit) {
  const int64_t mean = divide_up(rows.likely > 0 ? rows.likely : rows.rows, rows.experts);
  if (rows.rows <= kDistinctRows && mean == 1) {
    return swapped_tile(choose_tile_features(rows.rows, n, unit), 32);
  }
  if (mean <= 20) return swapped_tile(64, 32);
  if (mean <= 48) return swapped_tile(64, 64);
  if (n % 256 == 0 || n > 1024) return staggered(plain_tile(128, 256), 3);
  return n % 192 == 0 ? plain_tile(128, 192) : plain_tile(128, 128);
}

using Launcher = decltype(&launch_grouped_plain);

const char* start(Launcher launch, const GroupedGemmArgs& args, const GemmConfig& config,
                  cudaStream_t stream) {
  int sm_count = 0;
  const cudaError_t error = count_multiprocessors(sm_count);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return launch(args, config, sm_count, stream);
}

}  // namespace

const char* launch_grouped_gemm(const GroupedGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.rows.rows == 0) return nullptr;
  const GemmConfig config = choose_config(args.rows, args.n, 8);
  return start(config.swap_operands ? launch_grouped_swapped : launch_grouped_plain, args, config,
               stream);
}

constexpr int kPairFeatures = 16;  // 8 features of gate and 8 of up (swiglu_weights.cuh)

bool fuses_grouped_swiglu(int64_t n, int64_t k) { return n % 16 == 0 && k % 64 == 0; }

const char* launch_grouped_gemm_swiglu(const GroupedGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (!fuses_grouped_swiglu(args.n, args.k)) {
    return "grouped gemm: SwiGLU needs n in multiples of 16, k in multiples of 64";
  }
  if (args.rows.rows == 0) return nullptr;
  return start(launch_grouped_swiglu, args, choose_config(args.rows, args.n, kPairFeatures),
               stream);
}

const char* launch_grouped_input_grad(const GroupedGemmArgs& args, cudaStream_t stream) {
  if (const char* fault = find_fault(args)) return fault;
  if (args.rows.rows == 0) return nullptr;
  return start(launch_grouped_turned, args, staggered(plain_tile(128, 256), 3), stream);
}

}  // namespace slimexx::kernels

// The heuristic puts tiles of 128 x 256 elements and more first. On an H200, which its power limit
// holds at some 660 TFLOP/s, tiles of 128 x 128 and 128 x 160 of two blocks a cluster take 0.94 of
// that answer's time in the mean (layers and heads of Qwen3-4B, Qwen3-8B and GLM-4-9B, 2048 to
// 16384 rows). The worst of these answers takes 1.03, the worst of those chosen here 1.02; but for
// input gradients over a whole vocabulary they can take 1.2.
#include "kernels/gemm_backward/choose.h"

#include <cmath>

namespace slimexx::kernels {
namespace {

// What was measured: sums of this many terms, and three waves of tiles or more.
constexpr int64_t kLeastDepth = 2048;
constexpr int64_t kLargestInputDepth = 32768;
constexpr float kLeastWaves = 3.0f;

template <class T>
T read(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS && written == sizeof(value) ? value : T{};
}

bool is_preferred(const cublasLtMatmulHeuristicResult_t& answer) {
  const auto tile = read<uint32_t>(answer.algo, CUBLASLT_ALGO_CONFIG_TILE_ID);
  const auto cluster = read<uint16_t>(answer.algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
  const bool small_tile =
      tile == CUBLASLT_MATMUL_TILE_128x128 || tile == CUBLASLT_MATMUL_TILE_128x160;
  const bool pair =
      cluster == CUBLASLT_CLUSTER_SHAPE_2x1x1 || cluster == CUBLASLT_CLUSTER_SHAPE_1x2x1;
  return answer.state == CUBLAS_STATUS_SUCCESS && small_tile && pair &&
         read<int32_t>(answer.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) == 1 &&
         answer.wavesCount >= kLeastWaves;
}

// The share of its waves that a product fills.
float fullness(const cublasLtMatmulHeuristicResult_t& answer) {
  return answer.wavesCount / std::ceil(answer.wavesCount);
}

}  // namespace

const cublasLtMatmulHeuristicResult_t* find_preferred(
    const GradProduct& p, std::span<const cublasLtMatmulHeuristicResult_t> answers) {
  if (p.depth() < kLeastDepth) return nullptr;
  if (!p.transpose_a && p.depth() > kLargestInputDepth) return nullptr;
  const cublasLtMatmulHeuristicResult_t* best = nullptr;
  for (const cublasLtMatmulHeuristicResult_t& answer : answers) {
    if (!is_preferred(answer)) continue;
    if (best == nullptr || fullness(answer) > fullness(*best)) best = &answer;
  }
  return best;
}

}  // namespace slimexx::kernels

// cuBLASLt's heuristic ranks tiles of 128 x 256 and more elements first. On an H200 at its power
// limit (about 660 TFLOP/s), tiles of 128 x 128 and 128 x 160 in clusters of two blocks take on
// average 0.94 of the time of the first suggestion (layers and heads of Qwen3-4B, Qwen3-8B and
// GLM-4-9B, 2048 to 16384 rows). Over all of these shapes they take at most 1.03 of that time, and
// over the shapes for which this file chooses them at most 1.02. For input gradients over a whole
// vocabulary, however, such tiles can take 1.2 of the time.
#include "kernels/gemm_backward/choose.h"

#include <cmath>

namespace slimexx::kernels {
namespace {

// Limits of the measurements: sums of at least 2048 terms (input gradients: at most 32768), and at
// least three waves of tiles.
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

// Average utilisation of the SMs in a product's waves of tiles.
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

// Samples one token per row. A first pass over the logits writes the partial results of the tiles,
// as for the log-normaliser (4.75 KB for a row of 151936 columns). Then one block per row, or one
// cluster if there are few rows, chooses the token (row_sampler.cuh, truncation.cuh).
#include <cuda_runtime.h>

#include "kernels/vocabulary/truncation.cuh"

namespace slimexx::kernels::vocabulary {
namespace {

constexpr size_t kSharedBytes = sizeof(TruncationMemory) + kMaxCandidates * sizeof(uint64_t);
constexpr int kRowCluster = 8;
constexpr int64_t kRowsByCluster = 32;  // up to 32 rows: one block per row would leave SMs idle

struct Output {
  int32_t* tokens;
  float* log_probs;
  KeptSet* kept_sets;
};

template <int kCluster>
__global__ void __launch_bounds__(kSamplingThreads, 2)
    sample_rows(Output out, TilePartials partials, LogitRows rows,
                const SamplingParameters* parameters, int allowed) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ RowMemory memory;
  enter_kernel();
  const int64_t index = blockIdx.x / kCluster;
  const bool is_first = blockIdx.x % kCluster == 0;
  if (threadIdx.x == 0) memory.parameters = parameters[index];
  __syncthreads();
  SampledRow row(rows, index, allowed, memory.parameters.temperature);
  const bool greedy = memory.parameters.greedy != 0;
  const bool truncated = !greedy && row.is_truncated(memory.parameters);
  if (!truncated && !is_first) return;
  int token = -1;
  KeptSet kept;
  if (read_tiles(memory, row, index, partials)) {
    if (greedy) {
      token = pick_largest(memory, row);
    } else if (!truncated) {
      token = pick_from_all(memory, row, kept);
    } else {
      auto* const room = reinterpret_cast<TruncationMemory*>(shared);
      auto* const candidates = reinterpret_cast<uint64_t*>(shared + sizeof(TruncationMemory));
      token = Truncation<kCluster>(*room, memory, row).pick(candidates, kept);
    }
  }
  if (threadIdx.x != 0 || !is_first) return;
  kept.maximum = row.maximum;
  out.tokens[index] = token;
  out.log_probs[index] =
      token < 0 ? __int_as_float(0x7fffffff) : __fadd_rn(row.z_of(token), -memory.lse);
  out.kept_sets[index] = kept;
}

}  // namespace
}  // namespace slimexx::kernels::vocabulary

namespace slimexx::kernels {

using namespace vocabulary;

size_t sample_tokens_workspace(int64_t rows, int64_t columns) {
  return (partials_bytes(rows, columns, false) + 15) / 16 * 16 +
         static_cast<size_t>(rows) * sizeof(KeptSet);
}

cudaError_t sample_tokens(int32_t* tokens, float* log_probs, const LogitRows& logits,
                          const SamplingParameters* parameters, int64_t allowed_tokens,
                          void* workspace, cudaStream_t stream) {
  if (logits.rows == 0) return cudaSuccess;
  if (logits.columns < 1 || logits.columns > kMaxSampledColumns) return cudaErrorInvalidValue;
  const int64_t allowed =
      allowed_tokens > 0 && allowed_tokens < logits.columns ? allowed_tokens : logits.columns;
  const TilePartials partials = place_partials(workspace, logits.rows, logits.columns, false);
  const RowTemperatures temperatures = {&parameters->temperature,
                                        sizeof(SamplingParameters) / sizeof(float)};
  if (const cudaError_t error = launch_tile_pass(partials, logits, temperatures, false, stream)) {
    return error;
  }
  const Output out = {tokens, log_probs, place_kept_sets(workspace, logits.rows, logits.columns)};
  const bool clustered = logits.rows <= kRowsByCluster;
  const unsigned cluster = clustered ? kRowCluster : 1;
  return launch(clustered ? sample_rows<kRowCluster> : sample_rows<1>,
                {logits.rows * cluster, kSamplingThreads, kSharedBytes, cluster}, stream, out,
                partials, logits, parameters, static_cast<int>(allowed));
}

}  // namespace slimexx::kernels

// Computes log-normalisers, log-probs of targets, entropies, and the gradient of log-probs and
// entropies.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/vocabulary/launch.cuh"
#include "kernels/vocabulary/logit_gradient.cuh"

namespace slimexx::kernels {

using namespace vocabulary;

namespace {

constexpr int kThreads = 256;

__global__ void gather_rows(float* log_probs, LogitRows z, const float* lse,
                            const int32_t* targets) {
  enter_kernel();
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= z.rows) return;
  const int64_t target = targets[row];
  const bool inside = target >= 0 && target < z.columns;
  const float outside = target == -1 ? 0.0f : __int_as_float(0x7fffffff);
  log_probs[row] = inside ? __fadd_rn(z.logits[row * z.stride + target], -lse[row]) : outside;
}

__global__ void merge_leaves(float* lse, const float* leaves, int64_t count, int64_t rows) {
  enter_kernel();
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float largest = leaves[row], sum = 0;
  for (int64_t l = 1; l < count; ++l) largest = fmaxf(largest, leaves[l * rows + row]);
  for (int64_t l = 0; l < count; ++l)
    sum = __fadd_rn(sum, expf(__fadd_rn(leaves[l * rows + row], -largest)));
  lse[row] = __fadd_rn(largest, logf(sum));
}

constexpr int kVector = 8;  // columns of one 16-byte store
constexpr int kVectorsPerThread = 2;
constexpr int kBlockColumns = kThreads * kVector * kVectorsPerThread;

// kAligned: 16-byte stores are possible.
template <bool kAligned>
__global__ void __launch_bounds__(kThreads)
    backward_rows(__nv_bfloat16* dlogits, int64_t dlogits_stride, LogitRows z, GradientRows rows,
                  float inverse_temperature, unsigned blocks_per_row) {
  enter_kernel();
  const int64_t row = blockIdx.x / blocks_per_row;
  const int64_t first_column = int64_t{blockIdx.x % blocks_per_row} * kBlockColumns;
  const GradientRow constants = rows.load(row);
  const auto gradient = [&](float value, int64_t column) {
    float d = constants.gradient(value);
    if (column == constants.target) d += constants.dlp;
    return d * inverse_temperature;
  };
  const float* in = z.logits + row * z.stride;
  __nv_bfloat16* out = dlogits + row * dlogits_stride;
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    const int64_t column = first_column + (v * kThreads + threadIdx.x) * kVector;
    if (kAligned && column + kVector <= z.columns) {
      const float4 low = *reinterpret_cast<const float4*>(in + column);
      const float4 high = *reinterpret_cast<const float4*>(in + column + 4);
      const float values[kVector] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      __align__(16) __nv_bfloat162 pairs[kVector / 2];
#pragma unroll
      for (int i = 0; i < kVector; i += 2) {
        pairs[i / 2] = __floats2bfloat162_rn(gradient(values[i], column + i),
                                             gradient(values[i + 1], column + i + 1));
      }
      *reinterpret_cast<uint4*>(out + column) = *reinterpret_cast<const uint4*>(pairs);
    } else {
      for (int64_t c = column; c < min(column + kVector, z.columns); ++c) {
        out[c] = __float2bfloat16_rn(gradient(in[c], c));
      }
    }
  }
}

}  // namespace

size_t normalize_logits_workspace(int64_t rows, int64_t columns) {
  return partials_bytes(rows, columns, false);
}

namespace {

cudaError_t normalize(const LogitRows& z, float* lse, const RowTemperatures& by_row,
                      void* workspace, cudaStream_t stream) {
  const TilePartials partials = place_partials(workspace, z.rows, z.columns, false);
  if (const cudaError_t error = launch_tile_pass(partials, z, by_row, true, stream)) return error;
  MergedRows merged;
  merged.lse = lse;
  return launch_merge(merged, partials, z.rows, stream);
}

}  // namespace

cudaError_t normalize_logits(const LogitRows& z, float* lse, const float* temperatures,
                             float temperature, void* workspace, cudaStream_t stream) {
  return normalize(z, lse, {temperatures, 1, temperature}, workspace, stream);
}

cudaError_t normalize_logits(const LogitRows& z, float* lse, const SamplingParameters* parameters,
                             void* workspace, cudaStream_t stream) {
  return normalize(z, lse, {&parameters->temperature, sizeof(SamplingParameters) / sizeof(float)},
                   workspace, stream);
}

cudaError_t merge_lse(float* lse, const float* leaves, int64_t count, int64_t rows,
                      cudaStream_t stream) {
  if (rows == 0) return cudaSuccess;
  return launch(merge_leaves, {(rows + kThreads - 1) / kThreads, kThreads}, stream, lse, leaves,
                count, rows);
}

size_t gather_log_probs_workspace(int64_t rows, int64_t columns) {
  return partials_bytes(rows, columns, true);
}

cudaError_t gather_log_probs(float* log_probs, float* entropies, const LogitRows& z,
                             const float* lse, const int32_t* targets, void* workspace,
                             cudaStream_t stream) {
  if (z.rows == 0) return cudaSuccess;
  if (const cudaError_t error = launch(gather_rows, {(z.rows + kThreads - 1) / kThreads, kThreads},
                                       stream, log_probs, z, lse, targets)) {
    return error;
  }
  if (entropies == nullptr) return cudaSuccess;
  const TilePartials partials = place_partials(workspace, z.rows, z.columns, true);
  if (const cudaError_t error = launch_tile_pass(partials, z, {}, false, stream)) return error;
  MergedRows merged;
  merged.entropies = entropies;
  merged.whole_lse = lse;
  return launch_merge(merged, partials, z.rows, stream);
}

cudaError_t log_probs_backward(void* dlogits, int64_t dlogits_stride, const LogitRows& z,
                               const float* lse, const int32_t* targets, const float* entropies,
                               const float* dlog_probs, const float* dentropies, float temperature,
                               cudaStream_t stream) {
  if (z.rows == 0 || z.columns == 0) return cudaSuccess;
  if (z.stride % 4 != 0 || reinterpret_cast<uintptr_t>(z.logits) % 16 != 0 ||
      (dentropies != nullptr && entropies == nullptr)) {
    return cudaErrorInvalidValue;
  }
  const bool aligned =
      dlogits_stride % kVector == 0 && reinterpret_cast<uintptr_t>(dlogits) % 16 == 0;
  const auto blocks_per_row =
      static_cast<unsigned>((z.columns + kBlockColumns - 1) / kBlockColumns);
  const GradientRows rows = {lse, entropies, dlog_probs, dentropies, targets};
  const auto kernel = aligned ? backward_rows<true> : backward_rows<false>;
  return launch(kernel, {z.rows * blocks_per_row, kThreads}, stream,
                static_cast<__nv_bfloat16*>(dlogits), dlogits_stride, z, rows, 1.0f / temperature,
                blocks_per_row);
}

}  // namespace slimexx::kernels

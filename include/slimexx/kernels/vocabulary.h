// Rows of fp32 logits over the vocabulary: log-softmax, entropy, their gradient, and sampling.
// Pointers are device pointers; strides and sizes count elements. Nothing is allocated, nothing
// synchronises; each function queues its kernels on `stream` and returns cudaGetLastError().
//
// Part of the numeric contract (N4, N9): z = logit / temperature (a true fp32 division). The
// log-sum-exp of a row is computed in tiles of kLogSumTile columns: a fixed tree gives each tile's
// maximum and its sum of exp(z - maximum), and another fixed tree merges the tiles in ascending
// order. An epilogue that computes the tiles' partial results must use the same tree, which
// kernels/vocabulary/tile_sum.cuh defines.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "slimexx/kernels/sampling_parameters.h"

namespace slimexx::kernels {

inline constexpr int64_t kLogSumTile = 256;

// logits [rows, columns] f32 with row stride (a multiple of 4; 16-byte aligned).
struct LogitRows {
  float* logits = nullptr;
  int64_t stride = 0, rows = 0, columns = 0;
};

// In place: logits become z (not written if the temperature is 1); lse[rows] = log sum exp z.
// `temperatures` [rows]; null: `temperature` for all rows.
size_t normalize_logits_workspace(int64_t rows, int64_t columns);
cudaError_t normalize_logits(const LogitRows& z, float* lse, const float* temperatures,
                             float temperature, void* workspace, cudaStream_t stream);

// normalize_logits with the temperatures in `parameters` [rows].
cudaError_t normalize_logits(const LogitRows& z, float* lse, const SamplingParameters* parameters,
                             void* workspace, cudaStream_t stream);

// lse[rows] for rows whose columns are split into `count` leaves, from the leaves' own log-sum-exp,
// leaves [count, rows]: largest + log(sum of exp(leaf - largest)), added in the order of the
// leaves.
cudaError_t merge_lse(float* lse, const float* leaves, int64_t count, int64_t rows,
                      cudaStream_t stream);

// log_probs[r] = z[r, targets[r]] - lse[r], or 0 if the target is -1 (in another leaf).
// entropies[r] = -sum p log p over these columns, p = exp(z - lse); may be null. For a leaf,
// entropies[r] is the leaf's part of the row's entropy. Summed in fp32 with the same tiles.
size_t gather_log_probs_workspace(int64_t rows, int64_t columns);
cudaError_t gather_log_probs(float* log_probs, float* entropies, const LogitRows& z,
                             const float* lse, const int32_t* targets, void* workspace,
                             cudaStream_t stream);

// dlogits [rows, columns] bf16 (row stride in elements), the gradient with respect to the raw
// logits before the temperature:
//   (dlp * (1_target - p) - dH * p * (log p + H)) / temperature,  p = exp(z - lse)
// entropies and dentropies: both or neither null.
cudaError_t log_probs_backward(void* dlogits, int64_t dlogits_stride, const LogitRows& z,
                               const float* lse, const int32_t* targets, const float* entropies,
                               const float* dlog_probs, const float* dentropies, float temperature,
                               cudaStream_t stream);

// Samples one token per row of raw logits. Normalises as normalize_logits does, with the row's own
// temperature; log_probs[r] = z[r, token] - lse[r], before any truncation. Truncation order: top_k;
// top_p over the renormalised rest (the smallest set of most likely tokens whose mass reaches
// top_p, ties to the lower id); min_p (p >= min_p * max p). A uniform number (53 bits of Philox
// words 0 and 1, see base/philox.h and ops/cpu/sampling.cpp) selects among the kept tokens by
// cumulative weight in id order. Ids at or above `allowed_tokens` (0: all) are never sampled but
// count in lse. A row's result depends only on that row. tokens[r] = -1 if the row has NaN, +inf or
// only -inf.
size_t sample_tokens_workspace(int64_t rows, int64_t columns);
cudaError_t sample_tokens(int32_t* tokens, float* log_probs, const LogitRows& logits,
                          const SamplingParameters* parameters, int64_t allowed_tokens,
                          void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels

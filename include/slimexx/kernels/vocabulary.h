// Rows of fp32 logits over the vocabulary: log-softmax, entropy, their gradient, and sampling.
// Pointers are device pointers; strides and sizes count elements. Nothing is allocated, nothing
// synchronises; each function queues its kernels on `stream` and returns cudaGetLastError().
//
// Part of the numeric contract (N4, N9): z = logit / temperature (a true fp32 division). The
// log-normaliser of a row is built from column tiles of kLogSumTile columns: each tile gives its
// maximum and the sum of exp(z - maximum) by one fixed tree, and tiles merge in ascending order by
// one fixed tree. A product that computes the tiles' partial results in its epilogue must form the
// same tree (kernels/vocabulary/tile_sum.cuh defines it once).
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

// In place: logits become z (nothing is written where the temperature is 1); lse[rows] =
// log sum exp z. `temperatures` [rows] by row, or null: `temperature` for all.
size_t normalize_logits_workspace(int64_t rows, int64_t columns);
cudaError_t normalize_logits(const LogitRows& z, float* lse, const float* temperatures,
                             float temperature, void* workspace, cudaStream_t stream);

// The same with the temperatures of rows that sample_tokens gets.
cudaError_t normalize_logits(const LogitRows& z, float* lse, const SamplingParameters* parameters,
                             void* workspace, cudaStream_t stream);

// lse[rows] of rows that are split over `count` leaves of columns, from each leaf's own, leaves
// [count, rows]: the largest plus the log of the sum of exp(leaf - largest), first leaf first.
cudaError_t merge_lse(float* lse, const float* leaves, int64_t count, int64_t rows,
                      cudaStream_t stream);

// log_probs[r] = z[r, targets[r]] - lse[r], 0 where the target is -1 (of another leaf);
// entropies[r] = -sum p log p over these columns (null: not wanted), p = exp(z - lse): of a leaf,
// what it adds to the row's. Summed in fp32 by the same tiles.
size_t gather_log_probs_workspace(int64_t rows, int64_t columns);
cudaError_t gather_log_probs(float* log_probs, float* entropies, const LogitRows& z,
                             const float* lse, const int32_t* targets, void* workspace,
                             cudaStream_t stream);

// dlogits [rows, columns] bf16 (row stride in elements), by the raw logits before the temperature:
//   (dlp * (1_target - p) - dH * p * (log p + H)) / temperature,  p = exp(z - lse)
// entropies and dentropies are null together.
cudaError_t log_probs_backward(void* dlogits, int64_t dlogits_stride, const LogitRows& z,
                               const float* lse, const int32_t* targets, const float* entropies,
                               const float* dlog_probs, const float* dentropies, float temperature,
                               cudaStream_t stream);

// Raw logits in, one token a row out. Normalises as normalize_logits with the row's own
// temperature; log_probs[r] = z[r, token] - lse[r], before any truncation. Truncation order: top_k,
// then top_p over the renormalised rest (the smallest set of the most likely whose mass reaches
// top_p, ties to the lower id), then min_p (p >= min_p * max p); the uniform number (53 bits of
// Philox words 0 and 1, see base/philox.h and ops/cpu/sampling.cpp) walks the kept tokens in id
// order. Ids at or above `allowed_tokens` (0: all) are never sampled but count in lse. What a row
// gives depends on that row alone. tokens[r] = -1: the row holds NaN, +inf or nothing but -inf.
size_t sample_tokens_workspace(int64_t rows, int64_t columns);
cudaError_t sample_tokens(int32_t* tokens, float* log_probs, const LogitRows& logits,
                          const SamplingParameters* parameters, int64_t allowed_tokens,
                          void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels

// The sum over ranks, in rank order, of terms that lie in this device's memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

enum class RankTerm : uint8_t { kF32, kBf16, kF64 };

// own[i] = term 0 + term 1 + ... of `size` terms of n elements: `own` is term `rank`, the others
// stand in `others` one behind another, by rank. Adds from the first term to the last; bf16 in f32,
// rounded once (to nearest even). Queues its kernel and returns cudaGetLastError(), or
// cudaErrorInvalidValue for a size or rank below what there can be. n = 0 does nothing.
cudaError_t sum_rank_terms(void* own, const void* others, RankTerm type, int rank, int size,
                           int64_t n, cudaStream_t stream);

}  // namespace slimexx::kernels

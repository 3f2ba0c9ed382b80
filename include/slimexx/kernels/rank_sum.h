// The sum over ranks, in rank order, of terms in this device's memory.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

enum class RankTerm : uint8_t { kF32, kBf16, kF64 };

// own[i] = term 0 + term 1 + ... for `size` terms of n elements each. `own` is term `rank`;
// `others` holds the other terms one after another, by rank. Adds from the first term to the last;
// bf16 is added in f32 and rounded once (to nearest even). Queues its kernel and returns
// cudaGetLastError(), or cudaErrorInvalidValue for an invalid size or rank. n = 0 does nothing.
cudaError_t sum_rank_terms(void* own, const void* others, RankTerm type, int rank, int size,
                           int64_t n, cudaStream_t stream);

}  // namespace slimexx::kernels

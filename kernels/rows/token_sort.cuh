// Stable sort of a list of tokens with their positions: equal tokens are in the order of their
// positions.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels::rows {

struct SortedTokens {
  int32_t *tokens, *index;  // [count]
  int32_t* scratch;         // [count]
  void* sort;               // workspace of the radix sort; long lists only
  size_t sort_bytes, bytes;
};

// Lays out a workspace at `base`; `bytes` is its size, which never decreases as `count` grows.
// Tokens are in [0, vocabulary).
SortedTokens cut_token_workspace(void* base, int64_t count, int64_t vocabulary);
cudaError_t sort_tokens(const SortedTokens& sorted, const int32_t* tokens, int64_t count,
                        int64_t vocabulary, cudaStream_t stream);

}  // namespace slimexx::kernels::rows

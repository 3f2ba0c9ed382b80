// The positions of a list of tokens, ordered by token: equal tokens stand together with ascending
// position.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels::rows {

struct SortedTokens {
  int32_t *tokens, *index;  // [count]
  int32_t* scratch;         // [count]
  void* sort;               // of long lists only
  size_t sort_bytes, bytes;
};

// The parts of a workspace at `base`, and the bytes it takes in all: no fewer for a longer list.
// Tokens are in [0, vocabulary).
SortedTokens cut_token_workspace(void* base, int64_t count, int64_t vocabulary);
cudaError_t sort_tokens(const SortedTokens& sorted, const int32_t* tokens, int64_t count,
                        int64_t vocabulary, cudaStream_t stream);

}  // namespace slimexx::kernels::rows

// Chooses the kernels of the LM head. Compiles without CUDA, because a build without kernels plans
// memory by the same rule.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// Whether the LM head uses the tensor cores, the only path that can keep its logits. Otherwise it
// works on the logits of some rows at a time.
constexpr bool lm_head_takes_tensor_cores(int64_t vocabulary, int64_t k) {
  return vocabulary % 8 == 0 && k % 8 == 0;
}

}  // namespace slimexx::kernels

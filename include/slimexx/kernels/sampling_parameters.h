// How one row of logits is sampled, on the CPU and on the device; free of CUDA.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// One record of a table that the engine stages.
struct SamplingParameters {
  float temperature = 1.0f;
  float top_p = 1.0f;  // 1: off
  int32_t top_k = 0;   // 0: off
  float min_p = 0.0f;  // 0: off
  int32_t greedy = 0;  // 1: the largest logit, the lowest id of equals
  uint32_t unused = 0;
  uint64_t seed = 0;  // Philox key of the sample
  uint32_t counter[4] = {0, 0, 0, 0};
};
static_assert(sizeof(SamplingParameters) == 48);

}  // namespace slimexx::kernels

// How one row of logits is sampled. Shared by the CPU and the device; compiles without CUDA.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// The engine copies a table of these records to the device, one per row.
struct SamplingParameters {
  float temperature = 1.0f;
  float top_p = 1.0f;  // 1: off
  int32_t top_k = 0;   // 0: off
  float min_p = 0.0f;  // 0: off
  int32_t greedy = 0;  // 1: the largest logit; ties go to the lowest id
  uint32_t unused = 0;
  uint64_t seed = 0;  // Philox key of the sample
  uint32_t counter[4] = {0, 0, 0, 0};
};
static_assert(sizeof(SamplingParameters) == 48);

}  // namespace slimexx::kernels

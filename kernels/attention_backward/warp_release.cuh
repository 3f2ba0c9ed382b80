// How a warp releases a buffer. One lane arrives for all once they have read: __syncwarp orders
// the other lanes' reads before its arrival, and the barrier orders them before the next copy. The
// sanitizer's racecheck follows each thread through the barriers it arrives at itself, not that
// chain, and reports the copy; so a build for it (SLX_KERNEL_RACECHECK) has every lane arrive.
#pragma once
#include <cstdint>

#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels::attention_gradient {

#ifdef SLX_KERNEL_EVERY_LANE_ARRIVES
inline constexpr uint32_t kArrivalsPerWarp = 32;
#else
inline constexpr uint32_t kArrivalsPerWarp = 1;
#endif

__device__ __forceinline__ void release(uint32_t barrier) {
  __syncwarp();
  if (kArrivalsPerWarp == 32 || threadIdx.x % 32 == 0) kernels::arrive(barrier);
}

}  // namespace slimexx::kernels::attention_gradient

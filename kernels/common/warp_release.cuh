// A warp releases a buffer by the arrival of one lane: __syncwarp orders the other lanes' reads
// before the arrival, and the mbarrier orders them before the next load. The sanitizer's racecheck
// follows threads only through barriers at which they arrive themselves, and would report the load
// as a race. In builds for racecheck (SLX_KERNEL_RACECHECK) every lane arrives.
#pragma once
#include <cstdint>

#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels {

#ifdef SLX_KERNEL_EVERY_LANE_ARRIVES
inline constexpr uint32_t kArrivalsPerWarp = 32;
#else
inline constexpr uint32_t kArrivalsPerWarp = 1;
#endif

__device__ __forceinline__ void release(uint32_t barrier) {
  __syncwarp();
  if (kArrivalsPerWarp == 32 || threadIdx.x % 32 == 0) kernels::arrive(barrier);
}

}  // namespace slimexx::kernels

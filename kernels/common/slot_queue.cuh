// A queue of two work items from the loading warp to the computing warps. In shared memory: two
// full barriers, two empty barriers (8 bytes each), then two slots of 32 bytes.
#pragma once
#include <cstdint>

#include "kernels/common/mbarrier.cuh"

namespace slimexx::kernels {

struct SlotQueue {
  static constexpr uint32_t kBytes = 96;
  uint32_t address;  // shared, 16-byte aligned
  RingCursor<2> cursor;

  __device__ __forceinline__ uint32_t full() const { return address + cursor.stage * 8; }
  __device__ __forceinline__ uint32_t empty() const { return address + 16 + cursor.stage * 8; }
  __device__ __forceinline__ uint32_t slot() const { return address + 32 + cursor.stage * 32; }
  // Called by one thread. `arrivals`: arrivals of consumers at the empty barrier for each item.
  __device__ __forceinline__ void init(uint32_t arrivals) const {
    for (uint32_t i = 0; i < 2; ++i) {
      init_mbarrier(address + i * 8, 1);
      init_mbarrier(address + 16 + i * 8, arrivals);
    }
  }
};

}  // namespace slimexx::kernels

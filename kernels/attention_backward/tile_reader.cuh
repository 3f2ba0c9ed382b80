// A computing warpgroup's place in the ring of tiles: the next tile, whose scores are issued next,
// the current one, and the previous one, which products may still read.
#pragma once
#include <cstdint>

#include "kernels/attention_backward/tile_ring.cuh"

namespace slimexx::kernels::attention_gradient {

// `Layout` says where the ring lies in shared memory.
template <class Layout>
struct TileReader {
  using Ring = typename Layout::Ring;
  static constexpr uint32_t kNone = Ring::kStageCount;
  uint32_t shared;
  RingCursor<Ring::kStageCount> ahead;
  uint32_t stage, previous_stage;

  __device__ __forceinline__ Ring ring() const {
    return {shared + Layout::kRingAt, shared + Layout::kRingBarriersAt};
  }
  // The tiles of a pair: of the next stage, and of the current one.
  __device__ __forceinline__ uint32_t next_first() const { return ring().first(ahead.stage); }
  __device__ __forceinline__ uint32_t next_second() const { return ring().second(ahead.stage); }
  __device__ __forceinline__ uint32_t first() const { return ring().first(stage); }
  __device__ __forceinline__ uint32_t second() const { return ring().second(stage); }

  __device__ __forceinline__ void await_next() const {
    wait(ring().full(ahead.stage), ahead.parity);
  }
  // The next pair is the first of a walk.
  __device__ __forceinline__ void begin() {
    previous_stage = kNone;
    stage = ahead.stage;
    ahead.advance();
  }
  __device__ __forceinline__ void advance() {
    previous_stage = stage;
    stage = ahead.stage;
    ahead.advance();
  }
  __device__ __forceinline__ void release_current() const { release(ring().empty(stage)); }
  __device__ __forceinline__ void release_previous() const {
    if (previous_stage != kNone) release(ring().empty(previous_stage));
  }
  // Releases the next pair unread, or read ahead of its turn.
  __device__ __forceinline__ void drop_next() {
    release(ring().empty(ahead.stage));
    ahead.advance();
  }
  __device__ __forceinline__ void skip() {
    await_next();
    drop_next();
  }
};

}  // namespace slimexx::kernels::attention_gradient

// A computing warpgroup's place in the ring of tiles: the tile whose scores are issued next, the
// current one, and the one before, whose products may still read it.
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
  uint32_t stage, stage_before;

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
    stage_before = kNone;
    stage = ahead.stage;
    ahead.advance();
  }
  __device__ __forceinline__ void advance() {
    stage_before = stage;
    stage = ahead.stage;
    ahead.advance();
  }
  __device__ __forceinline__ void give_back() const { release(ring().empty(stage)); }
  __device__ __forceinline__ void give_back_before() const {
    if (stage_before != kNone) release(ring().empty(stage_before));
  }
  // Gives the next pair back: after it was read out of turn, or as soon as it is there.
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

// A computing warpgroup's position in the ring of tile pairs: the next pair, whose scores are
// issued next; the current pair; and the previous pair, which products in flight may still read.
#pragma once
#include <cstdint>

#include "kernels/attention_backward/tile_ring.cuh"

namespace slimexx::kernels::attention_gradient {

// `Layout` gives the ring's place in shared memory.
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
  // Addresses of the two tiles of the next pair and of the current pair.
  __device__ __forceinline__ uint32_t next_first() const { return ring().first(ahead.stage); }
  __device__ __forceinline__ uint32_t next_second() const { return ring().second(ahead.stage); }
  __device__ __forceinline__ uint32_t first() const { return ring().first(stage); }
  __device__ __forceinline__ uint32_t second() const { return ring().second(stage); }

  __device__ __forceinline__ void await_next() const {
    wait(ring().full(ahead.stage), ahead.parity);
  }
  // Makes the next pair the current pair, which is the first of a walk.
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
  // Releases the next pair, which is either unused or already read.
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

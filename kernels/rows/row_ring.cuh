// Streams rows through a ring in shared memory: a block walks rows [first, end) of up to four
// arrays, and bulk copies load each row `stages` rows ahead. Registers then hold one row only, and
// loads continue while the block computes.
#pragma once
#include "kernels/common/tma.cuh"
#include "kernels/rows/launch.cuh"

namespace slimexx::kernels::rows {

inline constexpr int kMaxStages = 4;

// One array: row r is at base + pitch * (indexed ? index[r] : r). base, pitch and bytes are
// multiples of 16.
struct RingSource {
  const void* base;
  int64_t pitch;
  uint32_t bytes;
  bool indexed;
};

struct RingPlan {
  RingSource source[4];
  const int32_t* index;
  int sources, stages;
  uint32_t stage_bytes;
  uint32_t offset[4];  // of each source within a stage
};

inline void add_source(RingPlan& plan, const void* base, int64_t pitch, int64_t bytes,
                       bool indexed = false) {
  plan.source[plan.sources] = {base, pitch, static_cast<uint32_t>(bytes), indexed};
  plan.offset[plan.sources++] = plan.stage_bytes;
  plan.stage_bytes += static_cast<uint32_t>(bytes);
}

// Chooses as many stages as fit into `budget` bytes: at least two, at most kMaxStages. Returns the
// bytes of all stages.
inline int choose_stages(RingPlan& plan, int64_t budget) {
  const int64_t fitting = budget / plan.stage_bytes;
  plan.stages = static_cast<int>(fitting < 2 ? 2 : fitting > kMaxStages ? kMaxStages : fitting);
  return plan.stages * static_cast<int>(plan.stage_bytes);
}

// Every thread of the block has its own object; thread 0 starts the copies.
class RowRing {
 public:
  // `full` [kMaxStages] and `buffer` are in shared memory; `buffer` is aligned to 16 bytes.
  __device__ __forceinline__ RowRing(const RingPlan& plan, uint64_t* full, char* buffer,
                                     int64_t first, int64_t end)
      : plan_(plan), full_(full), buffer_(buffer), next_(first), end_(end) {
    if (threadIdx.x == 0) {
      for (int s = 0; s < plan.stages; ++s) init_mbarrier(full + s, 1);
      fence_mbarrier_init();
      if (plan.index != nullptr && next_ < end_) ahead_ = plan.index[next_];
      for (int s = 0; s < plan.stages; ++s) fetch(s);
    }
    __syncthreads();
  }

  // Waits for the next row. Until release_row, row<T>(s) then points at this row of source s.
  __device__ __forceinline__ void await_row() {
    wait(full_ + cursor_.stage, cursor_.parity);
    current_ = buffer_ + cursor_.stage * plan_.stage_bytes;
    cursor_.advance(plan_.stages);
  }
  template <class T>
  __device__ __forceinline__ const T* row(int source) const {
    return reinterpret_cast<const T*>(current_ + plan_.offset[source]);
  }
  // Releases the stage of the oldest row. A block barrier must separate every thread's last read of
  // the row from this call.
  __device__ __forceinline__ void release_row() {
    if (threadIdx.x == 0) fetch(oldest_);
    if (++oldest_ == plan_.stages) oldest_ = 0;
  }

 private:
  __device__ __forceinline__ void fetch(int stage) {
    if (next_ >= end_) return;
    arrive_expect_bytes(full_ + stage, plan_.stage_bytes);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i >= plan_.sources) break;
      const RingSource& s = plan_.source[i];
      const char* from = static_cast<const char*>(s.base) + s.pitch * (s.indexed ? ahead_ : next_);
      load_bytes(buffer_ + stage * plan_.stage_bytes + plan_.offset[i], from, s.bytes,
                 full_ + stage);
    }
    ++next_;
    if (plan_.index != nullptr && next_ < end_) ahead_ = plan_.index[next_];
  }

  const RingPlan& plan_;
  uint64_t* full_;
  char* buffer_;
  int64_t next_, end_;
  int64_t ahead_ = 0;  // index[next_]
  StageCursor cursor_;
  int oldest_ = 0;
  const char* current_ = nullptr;
};

}  // namespace slimexx::kernels::rows

// Working memory of the calling thread, 64-byte aligned, kept between calls and grown on demand:
// one area per slot. The content is what the last user of the slot wrote.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

namespace slimexx::ops::cpu {

enum class Scratch { kPackedA, kPackedB, kAttention, kRowStatistics, kSampling, kNumSlots };

namespace detail {
struct AlignedDelete {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
struct ScratchArea {
  std::unique_ptr<float[], AlignedDelete> memory;
  int64_t capacity = 0;
};
}  // namespace detail

inline float* thread_scratch(Scratch slot, int64_t num_floats) {
  thread_local detail::ScratchArea areas[static_cast<size_t>(Scratch::kNumSlots)];
  detail::ScratchArea& area = areas[static_cast<size_t>(slot)];
  if (area.capacity < num_floats) {
    area.memory.reset();
    area.capacity = 0;
    const int64_t capacity = std::max<int64_t>(num_floats, 4096);
    area.memory.reset(static_cast<float*>(
        ::operator new[](static_cast<size_t>(capacity) * sizeof(float), std::align_val_t{64})));
    area.capacity = capacity;
  }
  return area.memory.get();
}

// Splits one area into pieces, each on its own cache lines.
class ScratchCarver {
 public:
  explicit ScratchCarver(float* memory) : next_(memory) {}
  float* take(int64_t num_floats) {
    float* piece = next_;
    next_ += (num_floats + 15) / 16 * 16;
    return piece;
  }

 private:
  float* next_;
};

}  // namespace slimexx::ops::cpu

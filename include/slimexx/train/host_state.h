// Optimizer state in host memory, while weights and gradients are on a device: gradients come down
// and weights go up in chunks, in page-locked memory, while the host's cores update another chunk.
// The bits are those of an update on the device, whose kernel does the host's operations in the
// host's order (ops/optimizer.h).
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "slimexx/ops/optimizer.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::train {

class HostState {
 public:
  // Small enough that gradients which just came down are still in the cache: on four H200s 10 %
  // less time than 2^21 elements, and than 2^18, where the threads' meetings show.
  static constexpr int64_t kChunkElements = int64_t{1} << 19;
  static constexpr int kNumSlots = 3;  // one on its way down, one computed, one on its way up

  // `device` is where weights and gradients are; the CPU works too. Gradients are f32, weights of
  // `weight_dtype`. Throws Error(kEnvironment) if the host has not that much memory. Within a
  // tensor::PlanningScope nothing moves.
  HostState(tensor::Device device, int64_t state_bytes, tensor::DType weight_dtype,
            int64_t chunk_elements = kChunkElements);

  // A part of the state, on the CPU.
  tensor::Tensor view(tensor::DType dtype, int64_t num_elements, int64_t offset_bytes) const;
  int64_t size_bytes() const { return size_bytes_; }

  // One group's tensors: state on the CPU, weights and gradients [m] on the device.
  struct Group {
    tensor::Tensor master, exp_avg, exp_avg_sq, weights, gradients;
  };
  // ops::adamw_ranges. Gradients are those that the context's stream holds; the new weights are on
  // the device when it has run. Returns when all is queued.
  void update(const ops::Context& ctx, const Group& group, std::span<const ops::DecayRange> ranges,
              const ops::AdamWStep& step);

  // f32 `values` [n] of the host from, and to, `weights` [n] of the device; done on return.
  void read_weights(tensor::Tensor values, tensor::Tensor weights);
  void write_weights(tensor::Tensor weights, tensor::Tensor values);

 private:
  struct Slot {
    tensor::Tensor weights, gradients;   // [chunk_elements], on the CPU
    tensor::Event downloaded, uploaded;  // of its last use
  };

  tensor::Device device_;
  int64_t chunk_elements_, size_bytes_ = 0;
  tensor::StagingBuffer state_, staging_;
  std::array<Slot, kNumSlots> slots_;
  tensor::Arena no_scratch_;
};

}  // namespace slimexx::train

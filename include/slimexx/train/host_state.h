// Optimizer state in host memory, with weights and gradients on a device. Chunks of gradients are
// downloaded and chunks of weights uploaded through page-locked memory while the host's cores
// update another chunk. The bits equal those of an update on the device, whose kernel does the same
// operations in the same order (ops/optimizer.h).
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "slimexx/ops/optimizer.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::train {

class HostState {
 public:
  // Small enough that downloaded gradients are still in the cache. On four H200s this is 10 %
  // faster than chunks of 2^21 elements or of 2^18, with which thread synchronization dominates.
  static constexpr int64_t kChunkElements = int64_t{1} << 19;
  static constexpr int kNumSlots = 3;  // one downloading, one updating, one uploading

  // `device` holds weights and gradients; it may be the CPU. Gradients are f32, weights
  // `weight_dtype`. Throws Error(kEnvironment) if the host lacks the memory. Moves nothing in a
  // tensor::PlanningScope.
  HostState(tensor::Device device, int64_t state_bytes, tensor::DType weight_dtype,
            int64_t chunk_elements = kChunkElements);

  // One tensor of the state, on the CPU.
  tensor::Tensor view(tensor::DType dtype, int64_t num_elements, int64_t offset_bytes) const;
  int64_t size_bytes() const { return size_bytes_; }

  // One group's tensors: state on the CPU, weights and gradients [m] on the device.
  struct Group {
    tensor::Tensor master, exp_avg, exp_avg_sq, weights, gradients;
  };
  // Runs ops::adamw_ranges. Reads gradients in stream order; the new weights are on the device when
  // the stream has run. Returns when all work is queued.
  void update(const ops::Context& ctx, const Group& group, std::span<const ops::DecayRange> ranges,
              const ops::AdamWStep& step);

  // Copies between f32 `values` [n] on the host and `weights` [n] on the device; done on return.
  void read_weights(tensor::Tensor values, tensor::Tensor weights);
  void write_weights(tensor::Tensor weights, tensor::Tensor values);

 private:
  struct Slot {
    tensor::Tensor weights, gradients;   // [chunk_elements], on the CPU
    tensor::Event downloaded, uploaded;  // of the slot's last use
  };

  tensor::Device device_;
  int64_t chunk_elements_, size_bytes_ = 0;
  tensor::StagingBuffer state_, staging_;
  std::array<Slot, kNumSlots> slots_;
  tensor::Arena no_scratch_;
};

}  // namespace slimexx::train

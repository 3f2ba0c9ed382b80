// What a pipeline stage does in one step, as a list made before the step starts; run_operations
// (executor.h) runs it in its order. With one stage it is forward, backward, forward, backward;
// with several, one-forward-one-backward after a warm-up (Narayanan et al., arXiv:2104.04473).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace slimexx::train {

enum class OperationKind : uint8_t { kForward, kBackward };

struct Operation {
  OperationKind kind;
  int64_t microbatch;
  size_t slot = 0;  // that keeps the microbatch's activations from its forward to its backward
  bool operator==(const Operation&) const = default;
};

// Slots of stage `stage` of `num_stages`: the most microbatches that it has in flight.
size_t count_slots(int stage, int num_stages, int64_t num_microbatches);
std::vector<Operation> list_operations(int stage, int num_stages, int64_t num_microbatches);

}  // namespace slimexx::train

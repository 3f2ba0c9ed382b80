#include "operations.h"

#include <algorithm>

namespace slimexx::train {

size_t count_slots(int stage, int num_stages, int64_t num_microbatches) {
  return static_cast<size_t>(
      std::clamp<int64_t>(num_stages - stage, 1, std::max<int64_t>(num_microbatches, 1)));
}

std::vector<Operation> list_operations(int stage, int num_stages, int64_t num_microbatches) {
  // A stage frees the oldest microbatch first: its slot is free again when its turn comes.
  const auto num_slots = static_cast<int64_t>(count_slots(stage, num_stages, num_microbatches));
  const auto operation = [&](OperationKind kind, int64_t m) {
    return Operation{kind, m, static_cast<size_t>(m % num_slots)};
  };
  const int64_t warm_up = std::min<int64_t>(num_stages - stage - 1, num_microbatches);
  std::vector<Operation> operations;
  for (int64_t m = 0; m < warm_up; ++m) operations.push_back(operation(OperationKind::kForward, m));
  for (int64_t m = warm_up; m < num_microbatches; ++m) {
    operations.push_back(operation(OperationKind::kForward, m));
    operations.push_back(operation(OperationKind::kBackward, m - warm_up));
  }
  for (int64_t m = num_microbatches - warm_up; m < num_microbatches; ++m)
    operations.push_back(operation(OperationKind::kBackward, m));
  return operations;
}

}  // namespace slimexx::train

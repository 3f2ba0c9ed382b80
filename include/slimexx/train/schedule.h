// What a pipeline stage does in one step, as a list of operations made before the step starts. With
// one stage it is forward, backward, forward, backward; with several, one-forward-one-backward
// after a warm-up (Narayanan et al., arXiv:2104.04473).
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::train {

enum class ScheduleKind : uint8_t { kForward, kBackward };

struct ScheduleOp {
  ScheduleKind kind;
  int64_t microbatch;
  bool operator==(const ScheduleOp&) const = default;
};

std::vector<ScheduleOp> make_schedule(int pp_rank, int pp_size, int64_t num_microbatches);

}  // namespace slimexx::train

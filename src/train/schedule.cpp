#include "slimexx/train/schedule.h"

#include <algorithm>

namespace slimexx::train {

std::vector<ScheduleOp> make_schedule(int pp_rank, int pp_size, int64_t num_microbatches) {
  const int64_t warm_up = std::min<int64_t>(pp_size - pp_rank - 1, num_microbatches);
  std::vector<ScheduleOp> ops;
  for (int64_t m = 0; m < warm_up; ++m) ops.push_back({ScheduleKind::kForward, m});
  for (int64_t m = warm_up; m < num_microbatches; ++m) {
    ops.push_back({ScheduleKind::kForward, m});
    ops.push_back({ScheduleKind::kBackward, m - warm_up});
  }
  for (int64_t m = num_microbatches - warm_up; m < num_microbatches; ++m)
    ops.push_back({ScheduleKind::kBackward, m});
  return ops;
}

}  // namespace slimexx::train

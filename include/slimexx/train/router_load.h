// Load statistics of one router in an optimizer step.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::train {

struct RouterLoad {
  int64_t layer = 0;                  // index in the model
  std::vector<int64_t> tokens;        // that chose each expert, over the step
  double max_load = 0, min_load = 0;  // of one expert, relative to the mean load
  double entropy = 0;                 // of the router's mean distribution, nats
  double aux_loss = 0, z_loss = 0;    // without coefficients (ops/router_balance.h)
};

// `sums` [2E+2] as in kernels/router_sums.h, over all ranks.
RouterLoad summarize_router(int64_t layer, const std::vector<int64_t>& sums);

}  // namespace slimexx::train

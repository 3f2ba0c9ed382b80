// What an optimizer step reports of a router: how its tokens spread over the experts.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::train {

struct RouterLoad {
  int64_t layer = 0;                  // of the model
  std::vector<int64_t> tokens;        // that chose each expert, of all tokens of the step
  double max_load = 0, min_load = 0;  // of an expert, over the mean load
  double entropy = 0;                 // of the mean distribution of the router, nats
  double aux_loss = 0, z_loss = 0;    // without coefficients (ops/router_balance.h)
};

// `sums` [2E+2] as kernels/router_sums.h says, of all ranks.
RouterLoad summarize_router(int64_t layer, const std::vector<int64_t>& sums);

}  // namespace slimexx::train

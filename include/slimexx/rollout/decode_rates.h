// What a layer of a decode step takes on a GPU beyond the bytes that it reads: its kernels wait for
// one another.
#pragma once
#include "slimexx/model/spec.h"

namespace slimexx::rollout {

// Seconds: what steps of one sequence took beyond their bytes (24, 28 and 40 us on an H200), more
// with experts and with latent attention.
double layer_wait_seconds(const model::LayerSpec& layer);

}  // namespace slimexx::rollout

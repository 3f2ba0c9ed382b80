// Costs of decode steps on GPUs besides reading weights and keys. The draft gate and `slimexx plan`
// use these estimates.
#pragma once
#include "slimexx/model/spec.h"

namespace slimexx::rollout {

// Seconds per layer in which its kernels wait for one another and read nothing. On an H200, for
// steps of one sequence: 24 us, 28 us with experts, 40 us with experts and latent attention.
double layer_wait_seconds(const model::LayerSpec& layer);
// Bytes for the logits of one row: written once, read twice.
double bytes_of_logits(const model::ModelSpec& spec);

}  // namespace slimexx::rollout

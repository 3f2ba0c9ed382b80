// What decode steps take on GPUs besides weights and keys, for those who estimate them: the gate of
// guesses and `slimexx plan`.
#pragma once
#include "slimexx/model/spec.h"

namespace slimexx::rollout {

// Seconds that a layer takes beyond the bytes that it reads, while its kernels wait for one
// another: of steps of one sequence 24, 28 with experts and 40 us with latent attention too (an
// H200).
double layer_wait_seconds(const model::LayerSpec& layer);
// Of a row: written, and read twice.
double bytes_of_logits(const model::ModelSpec& spec);

}  // namespace slimexx::rollout

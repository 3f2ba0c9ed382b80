// Costs of decode steps on GPUs besides reading weights and keys. The draft gate and `slimexx plan`
// use these estimates.
#pragma once
#include "slimexx/dist/groups.h"
#include "slimexx/model/spec.h"
#include "slimexx/tensor/device_kinds.h"

namespace slimexx::rollout {

// Seconds per layer in which its kernels wait for one another and read nothing.
double layer_wait_seconds(const model::LayerSpec& layer, const tensor::LayerWaits& waits);
// Bytes for the logits of one row: written once, read twice.
double bytes_of_logits(const model::ModelSpec& spec);

// The rates of the slowest rank among the tp and ep ranks of an engine: the one with the lowest
// copy rate, so that all ranks choose the same drafts if their GPUs differ. `host` are the engine's
// groups on host memory. Collective over both groups.
tensor::DecodeRates agree_on_rates(const dist::Groups& host, const tensor::DecodeRates& own);

}  // namespace slimexx::rollout

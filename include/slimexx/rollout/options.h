// The keys of the configuration section `rollout` that shape the engine (docs/reference/config.md).
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/config/config.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

struct EngineKeys {
  int64_t page_size = 16, max_running_requests = 256, chunked_prefill_size = 2048;
  int64_t max_total_tokens = 0;
  bool disable_radix_cache = false;
  std::optional<double> kv_cache_gib;
  std::string kv_cache_dtype = "auto";
  double mem_fraction_static = kDefaultMemFraction;
  // The ranks of an engine: see make_engine_shape (rl/engine_shape.h).
  int64_t rollout_num_gpus_per_engine = 1, dp_size = 1, ep_size = 1, ep_num_redundant_experts = 0;
  std::optional<int64_t> moe_dense_tp_size;  // unset: same as attention
  bool enable_dp_attention = false, enable_dp_lm_head = false;
  std::string speculative_algorithm = "none";
  std::optional<int64_t> speculative_num_steps, speculative_eagle_topk,
      speculative_num_draft_tokens;
  bool speculative_gate = true;
};

// `binder` is within the section `rollout`.
void bind(config::Binder& binder, EngineKeys& keys);

}  // namespace slimexx::rollout

#include "rl/config/run_config_later.h"

#include <cstdint>
#include <string>

namespace slimexx::rl {
namespace {

using config::Binder;

constexpr const char* kStages = "pipeline stages of an engine";
constexpr const char* kExchange = "other backends for expert dispatch and combine";
constexpr const char* kPartial = "partial rollouts";

void bind_later_engine(Binder& b) {
  b.later<int64_t>(
      "pp_size", 1,
      {.doc = "Pipeline stages of an engine.", .min = 1, .max = 1 << 20, .later = kStages});
  b.later<std::string>("moe_a2a_backend", "none",
                       {.doc = "Backend of expert dispatch and combine in an engine.",
                        .choices = {"none", "deepep", "mooncake"},
                        .later = kExchange});
  b.later<std::string>("deepep_mode", "auto",
                       {.doc = "Kernels of moe_a2a_backend deepep.",
                        .choices = {"auto", "normal", "low_latency"},
                        .later = kExchange,
                        .is_detail = true});
}

}  // namespace

void bind_later_rollout(Binder& b) {
  bind_later_engine(b);
  b.later("partial_rollout", false,
          {.doc = "Continue unfinished responses in the next rollout.", .later = kPartial});
  b.later("mask_offpolicy_in_partial_rollout", false,
          {.doc = "Mask the tokens that partial_rollout carried over from earlier rollouts.",
           .later = kPartial,
           .is_detail = true});
}

}  // namespace slimexx::rl

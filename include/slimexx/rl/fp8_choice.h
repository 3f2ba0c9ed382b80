// Decides from section `numerics` and the model's folder whether the forward products of a model
// are computed in FP8, and with which scales. Also decides whether keys and values are FP8.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "slimexx/base/json.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/encoding.h"
#include "slimexx/rl/run_config.h"

namespace slimexx::rl {

struct Fp8Choice {
  NumericsOptions options;
  // The largest tensor and expert tensor parallel sizes of trainer and engine.
  dist::GridSizes sizes;
  bool cache = false;  // rollout.kv_cache_dtype is fp8_e4m3
};

// What a model is for. With numerics.fp8: rollout_only, the encoding of a policy is_for_engines, a
// model that only scores is plain, and a model that only generates is FP8 as with `on`.
enum class Fp8Use : uint8_t { kPolicy, kScoring, kGeneration };
Fp8Choice make_fp8_choice(const RunConfig& config, Fp8Use use);

// Sets spec.encoding and spec.encoded if the run computes in FP8, and fp8_cache of all blocks if
// keys and values are FP8. `config` is config.json of `directory`. Throws Error(kUsage) if
// numerics.fp8 asks for FP8 and the model's sizes or the folder's scales do not allow it.
void choose_fp8(model::ModelSpec& spec, const Fp8Choice& choice, const Json& config,
                const std::string& directory);

// One line for logs and tables, for a spec with an encoding: how many matrices are FP8, and which
// are not.
std::string describe_fp8(const model::ModelSpec& spec);
// Logs this line, and a warning if only engines compute in FP8.
void log_fp8(const model::ModelSpec& spec);
// The FP8 settings that a checkpoint records and a resume compares.
Json fp8_identity(const model::ModelSpec& spec);

}  // namespace slimexx::rl

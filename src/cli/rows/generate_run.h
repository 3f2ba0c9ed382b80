// Runs `slimexx generate` after its flags are parsed: reads all prompts, runs one engine per rank
// on a shared queue of prompts, and returns one line per sample in prompt order. Samples do not
// depend on the rank that generates them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::cli {

struct GenerateFlags {
  std::string hf_checkpoint, input, output, device, input_key = "prompt";
  int64_t n = 1, max_new_tokens = 512, top_k = 0, seed = 0;
  double temperature = 1.0, top_p = 1.0;
  std::optional<double> kv_cache_gib;
  bool greedy = false, apply_chat_template = false;
};

void run_generate(const GenerateFlags& flags, Session& session);

}  // namespace slimexx::cli

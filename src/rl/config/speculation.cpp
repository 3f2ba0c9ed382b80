#include "rl/config/speculation.h"

#include <fmt/format.h>

#include "slimexx/base/error.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kDefaultDrafts = 3;

// A step that verifies computes the last known token and the drafts.
int64_t count_drafts(const RolloutOptions& o) {
  if (o.speculative_num_steps) return *o.speculative_num_steps;
  return o.speculative_num_draft_tokens.value_or(kDefaultDrafts + 1) - 1;
}

}  // namespace

bool asks_mtp(const RolloutOptions& o) {
  return o.speculative_algorithm == "EAGLE" || o.speculative_algorithm == "NEXTN";
}

bool speculates(const RolloutOptions& o) { return o.speculative_algorithm != "none"; }

void check_speculation(
    const RolloutOptions& o,
    const std::function<void(const char*, const std::string&, const std::string&)>& fault) {
  constexpr const char* kTopK = "rollout.speculative_eagle_topk";
  constexpr const char* kTokens = "rollout.speculative_num_draft_tokens";
  if (!asks_mtp(o)) return;
  if (const int64_t topk = o.speculative_eagle_topk.value_or(1); topk != 1)
    fault(kTopK, fmt::format("is {}, but only chains of drafts are supported, not trees", topk),
          "set it to 1");
  if (o.speculative_num_steps && o.speculative_num_draft_tokens &&
      *o.speculative_num_draft_tokens != *o.speculative_num_steps + 1)
    fault(kTokens,
          fmt::format("is {}, but speculative_num_steps {} needs {} tokens: the drafts and the "
                      "last sampled token",
                      *o.speculative_num_draft_tokens, *o.speculative_num_steps,
                      *o.speculative_num_steps + 1),
          "leave one of the two out");
}

void check_speculation(const RolloutOptions& o, const model::ModelSpec& spec,
                       const std::string& directory) {
  if (!asks_mtp(o) || !spec.mtp.empty()) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("rollout.speculative_algorithm is {}, but {} has no multi-token prediction layer",
                  o.speculative_algorithm, directory),
      "use NGRAM, leave the key out, or use the original checkpoint: exports of Hugging Face's "
      "libraries lack the layer",
      "rollout.speculative_algorithm");
}

void set_speculation(const RolloutOptions& o, rollout::EngineOptions& engine) {
  engine.num_draft_tokens = speculates(o) ? count_drafts(o) : 0;
  engine.drafts_by_mtp = asks_mtp(o);
  engine.gates_drafts = o.speculative_gate;
}

}  // namespace slimexx::rl

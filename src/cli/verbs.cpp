#include "cli/verbs.h"

namespace slimexx::cli {

const std::vector<Verb>& list_verbs() {
  static const std::vector<Verb> verbs = {
      {"train", "run RL or supervised training from a configuration", declare_train},
      {"eval", "sample and grade sets of prompts", declare_eval},
      {"score", "log-probs and entropies of given token sequences", declare_score},
      {"version", "version, build and features", declare_version},
  };
  return verbs;
}

}  // namespace slimexx::cli

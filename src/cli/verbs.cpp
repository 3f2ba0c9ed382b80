#include "cli/verbs.h"

namespace slimexx::cli {

const std::vector<Verb>& list_verbs() {
  static const std::vector<Verb> verbs = {
      {"train", "run RL or supervised training from a configuration", declare_train},
      {"plan", "grid, memory and time of a run, without GPUs or ranks", declare_plan},
      {"eval", "sample and grade sets of prompts", declare_eval},
      {"convert-hf", "Hugging Face folder <-> sharded checkpoint", declare_convert_hf},
      {"score", "log-probs and entropies of given token sequences", declare_score},
      {"tokenize", "text or chats -> token ids", declare_tokenize},
      {"grade", "rewards of given responses", declare_grade},
      {"generate", "prompts -> responses with log-probs", declare_generate},
      {"init", "write a checkpoint with random weights", declare_init},
      {"describe", "what a model is: layers, exact parameter counts", declare_describe},
      {"doctor", "what this machine and this launch look like", declare_doctor},
      {"samples", "print whole samples of a run", declare_samples},
      {"version", "version, build and features", declare_version},
      {"docs", "write the generated reference pages", declare_docs},
  };
  return verbs;
}

}  // namespace slimexx::cli

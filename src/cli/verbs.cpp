#include "cli/verbs.h"

namespace slimexx::cli {

const std::vector<Verb>& list_verbs() {
  static const std::vector<Verb> verbs = {
      {"train", "run RL or supervised fine-tuning from a configuration", declare_train},
      {"plan", "estimate layout, memory and time of a run, without GPUs", declare_plan},
      {"eval", "sample and grade sets of prompts", declare_eval},
      {"convert-hf", "convert between Hugging Face folders and sharded checkpoints",
       declare_convert_hf},
      {"score", "compute log-probs and entropies of given token sequences", declare_score},
      {"tokenize", "convert texts or chats to token ids", declare_tokenize},
      {"grade", "compute rewards of given responses", declare_grade},
      {"generate", "generate responses to prompts, with log-probs", declare_generate},
      {"init", "write a checkpoint with random weights", declare_init},
      {"describe", "print a model's layers and exact parameter counts", declare_describe},
      {"doctor", "check this host, its GPUs and this launch before a run", declare_doctor},
      {"samples", "print whole samples of a run", declare_samples},
      {"version", "print version, build and features", declare_version},
      {"docs", "write the generated reference pages", declare_docs},
  };
  return verbs;
}

}  // namespace slimexx::cli

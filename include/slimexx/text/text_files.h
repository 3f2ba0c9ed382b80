// The text files of a new checkpoint: tokenizer files, chat template, generation_config.json.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slimexx::text {

struct TextSources {
  std::string tokenizer;                // folder, file, "byte-level", or empty (no tokenizer)
  std::string chat_template;            // file, or empty: the template in the tokenizer's folder
  std::vector<std::string> eos_tokens;  // empty: taken from the tokenizer's files
};

// Files to write, by name. They have been checked: the tokenizer loads, the template parses.
struct TextFiles {
  std::map<std::string, std::string> files;
  std::vector<int32_t> eos_token_ids;
  int64_t vocab_size = 0;  // of the tokenizer; 0 if there is none
};

// Throws Error(kUsage) if the tokenizer lacks one of eos_tokens, Error(kInput) for broken files.
TextFiles collect_text_files(const TextSources& sources);

}  // namespace slimexx::text

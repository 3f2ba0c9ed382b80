// The text side of a fresh checkpoint: tokenizer files, chat template, generation_config.json.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slimexx::text {

struct TextSources {
  std::string tokenizer;                // folder, file, "byte-level", or empty: none
  std::string chat_template;            // file, or empty: the tokenizer folder's
  std::vector<std::string> eos_tokens;  // empty: found out
};

// Files to write, by name, checked: the tokenizer loads, the template parses.
struct TextFiles {
  std::map<std::string, std::string> files;
  std::vector<int32_t> eos_token_ids;
  int64_t vocab_size = 0;  // of the tokenizer; 0: none
};

// Throws Error(kUsage) for an end token that the tokenizer lacks, Error(kInput) for broken files.
TextFiles collect_text_files(const TextSources& sources);

}  // namespace slimexx::text

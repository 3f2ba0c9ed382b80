#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "slimexx/text/tokenizer.h"
#include "text/bpe/byte_level.h"

namespace slimexx::text {

std::string make_byte_level_tokenizer_json(const std::vector<std::string>& special_tokens) {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte)
    vocab[map_bytes(std::string(1, static_cast<char>(byte)))] = byte;
  Json added = Json::array();
  std::unordered_set<std::string> seen;
  for (const std::string& token : special_tokens) {
    if (token.empty() || !is_valid_utf8(token) || vocab.contains(token) ||
        !seen.insert(token).second) {
      throw Error(
          ErrorCode::kUsage,
          fmt::format("\"{}\" cannot be a special token", replace_invalid_utf8(token)),
          "special tokens must be distinct, not empty, valid UTF-8, and longer than one byte");
    }
    added.push_back({{"id", 256 + added.size()},
                     {"content", token},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", false},
                           {"use_regex", false}};
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", byte_level},
                     {"post_processor", nullptr},
                     {"decoder", byte_level},
                     {"model",
                      {{"type", "BPE"},
                       {"dropout", nullptr},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", vocab},
                       {"merges", Json::array()}}}};
  return file.dump(2) + "\n";
}

}  // namespace slimexx::text

// Reads tokenizer.json in one pass: the vocabulary and the merges, nearly all of the file, go to
// flat lists; the rest becomes a JSON value. Strict: valid UTF-8, no duplicate keys (BpeModel
// checks those of the vocabulary), bounded depth.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::text {

struct RawTokenizer {
  std::string where;
  std::unique_ptr<Json>
      document;  // without model.vocab if it is an object, and model.merges if it is an array
  bool has_vocab = false;
  bool has_merges = false;
  std::vector<std::pair<std::string, int64_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;

  RawTokenizer();
  RawTokenizer(RawTokenizer&&) noexcept;
  ~RawTokenizer();
};

RawTokenizer read_tokenizer_json(std::string_view json, const std::string& where);

}  // namespace slimexx::text

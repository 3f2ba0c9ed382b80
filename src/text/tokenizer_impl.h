// The parts of a loaded tokenizer.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "slimexx/text/tokenizer.h"
#include "text/added_tokens.h"
#include "text/bpe/bpe_model.h"
#include "text/bpe/token_decoder.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"

namespace slimexx::text {

struct Tokenizer::Impl {
  BpeModel model;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  TokenDecoder decoder;
  std::vector<AddedToken> added;
  AddedTokenFinder raw_finder;                              // searches the original text
  AddedTokenFinder normalized_finder;                       // searches the normalized text
  std::unordered_map<std::string_view, TokenId> added_ids;  // views of added[i].content
  std::vector<std::string> texts;                           // by id; "" for unused ids
  std::vector<std::string> bytes;                           // by id
  std::vector<bool> special;                                // by id

  static std::unique_ptr<Impl> build(RawTokenizer raw);
  const std::string& text_of(TokenId id) const;  // throws Error if id is out of range
  void encode_plain(std::string_view text, bool first, bool parse_special, WordList& list,
                    std::vector<TokenId>& ids) const;
  void encode_words(std::string_view text, bool first, WordList& list,
                    std::vector<TokenId>& ids) const;

 private:
  explicit Impl(BpeModel bpe) : model(std::move(bpe)) {}
  void place_added_tokens(const TokenizerSpec& root);
  void index_added_tokens();
  void render_bytes();
};

}  // namespace slimexx::text

// The "model" of tokenizer.json: vocabulary, merges and the handling of characters outside it.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slimexx/text/tokenizer.h"
#include "text/bpe/bpe_merge.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

class BpeModel {
 public:
  // Moves the vocabulary out of `raw`. `texts` receives the text of every id, "" for unused ids.
  static BpeModel build(RawTokenizer& raw, const TokenizerSpec& spec,
                        std::vector<std::string>& texts);

  // Lets encode_word take raw bytes instead of the byte-level alphabet, which is faster. Possible
  // if every byte has a token or is refused. Call once, before encoding.
  bool accepts_raw_bytes() const;
  void use_raw_bytes();

  // The bytes of UTF-8 text that encoding would drop, since they have no token and there is no
  // unknown token to replace them. `mapped`: words come in the byte-level alphabet; otherwise byte
  // fallback applies.
  std::vector<uint8_t> lost_bytes(bool mapped) const;
  // Makes encode_word throw Error(kInput) for words with such bytes instead of dropping them.
  void refuse_lost_bytes(bool mapped);

  // Excludes the id of a special token from the look-up of whole words in encode_word, so that
  // ordinary text that spells the token does not become that token.
  void exclude_whole_word(TokenId id);

  void encode_word(std::string_view word, std::vector<TokenId>& ids) const;

  std::optional<TokenId> find(std::string_view text) const;

 private:
  // Keys are views of the vocabulary's own strings, which live as long as the model.
  using WordMap = std::unordered_map<std::string_view, TokenId>;
  struct Storage {
    std::vector<std::string> words;
    std::vector<std::string> raw_words;
  };

  explicit BpeModel(size_t merge_count) : merges_(merge_count) {}
  void read_options(const TokenizerSpec& spec);
  void add_vocab(RawTokenizer& raw, std::vector<std::string>& texts);
  void add_merges(RawTokenizer& raw);
  void encode_uncached(std::string_view word, std::vector<TokenId>& ids) const;
  void add_characters(std::string_view word, std::vector<TokenId>& ids) const;
  bool add_byte_tokens(std::string_view character, std::vector<TokenId>& ids) const;
  [[noreturn]] void refuse_word(std::string_view word, size_t at) const;

  std::unique_ptr<Storage> storage_ = std::make_unique<Storage>();
  WordMap vocab_;
  WordMap whole_words_;  // for ignore_merges, keyed by words as encode_word gets them
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_;  // raw bytes, or <0x..> tokens; -1 if there is no token
  std::vector<bool> excluded_;
  std::string prefix_, suffix_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool raw_bytes_ = false;
  bool refuses_lost_ = false;
  bool mapped_ = false;  // with refuses_lost_: words come in the byte-level alphabet
  uint32_t serial_ = 0;
};

}  // namespace slimexx::text

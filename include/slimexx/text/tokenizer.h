// Byte-level BPE tokenizers as `tokenizer.json` describes them (Hugging Face tokenizers format):
// normalizer, added and special tokens, pre-tokenizer, merges, decoder. Immutable after load; every
// const member may be called from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::text {

using TokenId = int32_t;

struct EncodeOptions {
  // Text of special tokens found in the input becomes their ids (what a rendered chat template
  // needs). false: such text is encoded as ordinary bytes, so user data cannot forge control
  // tokens.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // Loads <dir>/tokenizer.json (or the file itself). Throws Error(kInput) naming file and key for
  // content that is malformed or not supported.
  static Tokenizer load(const std::string& directory_or_file);
  // `where` names the source in errors.
  static Tokenizer parse(std::string_view json, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // No special tokens are added (the post-processor is not run); invalid UTF-8 is replaced by
  // U+FFFD. Throws Error(kInput) for a text above 32 MiB, and for one that the file's normalizer
  // makes too long.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Text of the ids; bytes that are not valid UTF-8 become U+FFFD. Ids out of range throw Error.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  // The raw bytes of one token (a part of a UTF-8 sequence, perhaps); of an added token its
  // content.
  const std::string& token_bytes(TokenId id) const;

  int64_t vocab_size() const;  // largest id + 1, added tokens included
  bool is_special(TokenId id) const;
  std::optional<TokenId> token_to_id(
      std::string_view token) const;  // by its text, added tokens first

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A decoder's state between two tokens.
struct DecodeState {
  std::string pending;   // bytes that do not yet make whole characters
  std::string held;      // text that may yet be stripped from the end
  int64_t tokens = 0;    // tokens seen
  int64_t stripped = 0;  // characters stripped from the start
  bool started = false;  // nothing more is to be stripped from the start
};

// Turns a growing id sequence into text without splitting UTF-8 sequences: push returns the text
// that has become complete; flush what is left, broken bytes as U+FFFD. The concatenation equals
// decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = false)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string push(TokenId id);
  void push(TokenId id, std::string& out);  // appends
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  DecodeState state_;
};

// The tokenizer of the quickstart: the 256 bytes and the given special tokens, as the text of a
// tokenizer.json that this class and Hugging Face's both load.
std::string make_byte_level_tokenizer_json(const std::vector<std::string>& special_tokens);

}  // namespace slimexx::text

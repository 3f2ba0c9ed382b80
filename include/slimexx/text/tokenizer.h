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
  // true: special tokens spelled in the input become their ids, as a rendered chat template needs.
  // false: their text is encoded as ordinary bytes, so that user data cannot forge control tokens.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // Loads <dir>/tokenizer.json (or the file itself). Throws Error(kInput) naming file and key if
  // the content is malformed or not supported.
  static Tokenizer load(const std::string& directory_or_file);
  // `where` names the source in errors.
  static Tokenizer parse(std::string_view json, const std::string& where);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Adds no special tokens (does not run the post-processor); replaces invalid UTF-8 by U+FFFD.
  // Throws Error(kInput) if the text is above 32 MiB, or if the normalizer makes it too long.
  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Text of the ids; bytes that are not valid UTF-8 become U+FFFD. Throws Error for ids out of
  // range.
  std::string decode(std::span<const TokenId> ids, bool skip_special_tokens = false) const;
  // The raw bytes of one token, possibly only a part of a UTF-8 sequence; for an added token its
  // content.
  const std::string& token_bytes(TokenId id) const;

  int64_t vocab_size() const;  // largest id + 1, including added tokens
  bool is_special(TokenId id) const;
  std::optional<TokenId> token_to_id(
      std::string_view token) const;  // by its text, added tokens first

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The state of a decoder between two tokens.
struct DecodeState {
  std::string pending;   // bytes that do not form whole characters yet
  std::string held;      // text that may still be stripped from the end
  int64_t tokens = 0;    // tokens seen
  int64_t stripped = 0;  // characters stripped from the start
  bool started = false;  // stripping at the start has ended
};

// Turns a growing id sequence into text without splitting UTF-8 sequences. push returns the text
// that is now complete; flush returns the rest, with U+FFFD for broken bytes. The concatenation
// equals decode() of all ids.
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

// The text of a tokenizer.json with the 256 bytes and the given special tokens, for the quickstart.
// Both this class and Hugging Face can load it.
std::string make_byte_level_tokenizer_json(const std::vector<std::string>& special_tokens);

}  // namespace slimexx::text

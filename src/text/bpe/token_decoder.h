// The "decoder" of tokenizer.json as a state machine that takes one token at a time. So decoding a
// sequence and streaming it give the same text by construction.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/text/tokenizer.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

class TokenDecoder {
 public:
  static TokenDecoder build(const std::optional<TokenizerSpec>& spec);
  TokenDecoder();
  TokenDecoder(TokenDecoder&&) noexcept;
  TokenDecoder& operator=(TokenDecoder&&) noexcept;
  ~TokenDecoder();

  // The bytes that a token contributes on its own. The text of an added token (`added`) is taken
  // literally.
  std::string bytes_of(const std::string& text, bool added) const;

  // Appends to `out` the text that is now final. `bytes`: the result of bytes_of for the token.
  void push(const std::string& text, const std::string& bytes, DecodeState& state,
            std::string& out) const;
  void finish(DecodeState& state, std::string& out) const;

 private:
  struct Step;
  enum class Mode { kJoinWithSpaces, kByteLevel, kChain };
  struct Strip {
    std::string character;
    int64_t start = 0, stop = 0;
  };

  void read(const TokenizerSpec& spec, int depth);
  void read_strip(const TokenizerSpec& spec);
  std::string apply_steps(std::string text, bool first, bool after_bytes) const;
  void flush_bytes(DecodeState& state, std::string& out) const;
  void emit(std::string_view text, DecodeState& state, std::string& out) const;

  Mode mode_ = Mode::kJoinWithSpaces;
  std::vector<Step> steps_;       // applied to each token, in order
  size_t byte_stage_ = SIZE_MAX;  // steps from this index on come after ByteFallback
  bool byte_fallback_ = false;
  bool fused_ = false;
  std::optional<Strip> strip_;  // applied to the fused text
};

}  // namespace slimexx::text

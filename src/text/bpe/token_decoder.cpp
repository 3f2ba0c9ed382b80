#include "text/bpe/token_decoder.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "slimexx/base/strings.h"
#include "text/bpe/byte_level.h"
#include "text/replacement.h"

namespace slimexx::text {
namespace {

constexpr int kMaxNesting = 16;
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Length of the longest suffix of `bytes` that is an incomplete UTF-8 sequence which more bytes
// could complete.
size_t incomplete_tail(std::string_view bytes) {
  for (size_t n = 1; n <= std::min<size_t>(3, bytes.size()); ++n) {
    const auto lead = static_cast<uint8_t>(bytes[bytes.size() - n]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
    if (lead > 0xF4 || length <= n) return 0;
    // Some continuation bytes must complete the suffix to valid UTF-8. Try 0x80; if the second byte
    // is still missing, 0xA0 after E0 and 0x90 after F0, since 0x80 would be overlong there.
    std::string completed(bytes.substr(bytes.size() - n));
    if (n == 1) completed += lead == 0xE0 ? '\xA0' : lead == 0xF0 ? '\x90' : '\x80';
    completed.resize(length, '\x80');
    return is_valid_utf8(completed) ? n : 0;
  }
  return 0;
}

std::optional<uint8_t> byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

// Removes up to `most` copies of `character` from the front; returns how many it removed.
int64_t strip_front(std::string_view& text, std::string_view character, int64_t most) {
  int64_t n = 0;
  while (n < most && text.starts_with(character)) {
    text.remove_prefix(character.size());
    ++n;
  }
  return n;
}

void strip_back(std::string_view& text, std::string_view character, int64_t most) {
  for (int64_t n = 0; n < most && text.ends_with(character); ++n) {
    text.remove_suffix(character.size());
  }
}

}  // namespace

struct TokenDecoder::Step {
  std::optional<Replacement> replacement;
  std::optional<Strip> strip;
  std::string metaspace;
  bool drop_first = false;  // Metaspace: marks of the first token do not become spaces
};

TokenDecoder::TokenDecoder() = default;
TokenDecoder::TokenDecoder(TokenDecoder&&) noexcept = default;
TokenDecoder& TokenDecoder::operator=(TokenDecoder&&) noexcept = default;
TokenDecoder::~TokenDecoder() = default;

TokenDecoder TokenDecoder::build(const std::optional<TokenizerSpec>& spec) {
  TokenDecoder decoder;
  if (!spec) return decoder;
  decoder.mode_ = Mode::kChain;
  decoder.read(*spec, 0);
  return decoder;
}

void TokenDecoder::read(const TokenizerSpec& spec, int depth) {
  const std::string type = spec.type();
  if (type == "Sequence") {
    if (depth == kMaxNesting) throw spec.error("sequences are nested too deep");
    for (const auto& element : spec.elements("decoders")) read(element, depth + 1);
    return;
  }
  if (type == "Fuse") {
    fused_ = true;
    return;
  }
  if (type == "Strip") return read_strip(spec);
  if (fused_) spec.unsupported(fmt::format("the decoder {} after Fuse or ByteLevel", type));
  if (type == "ByteLevel") {
    if (byte_fallback_ || !steps_.empty())
      spec.unsupported("a ByteLevel decoder that is not the first");
    mode_ = Mode::kByteLevel;
    fused_ = true;
  } else if (type == "ByteFallback") {
    if (byte_fallback_) spec.unsupported("a second ByteFallback decoder");
    byte_fallback_ = true;
    byte_stage_ = steps_.size();
  } else if (type == "Replace") {
    steps_.emplace_back().replacement = Replacement::read(spec);
  } else if (type == "Metaspace") {
    if (byte_fallback_) spec.unsupported("a Metaspace decoder after ByteFallback");
    Step& step = steps_.emplace_back();
    step.metaspace = spec.string("replacement");
    if (step.metaspace.empty()) throw spec.error("\"replacement\" must be one character");
    step.drop_first = spec.string_or("prepend_scheme", "always") != "never" &&
                      spec.boolean_or("add_prefix_space", true);
  } else {
    spec.unsupported(fmt::format("the decoder {}", type));
  }
}

void TokenDecoder::read_strip(const TokenizerSpec& spec) {
  Strip strip{spec.string("content"), spec.integer("start"), spec.integer("stop")};
  size_t end = 0;
  if (!strip.character.empty()) next_code_point(strip.character, end);
  if (strip.character.empty() || end != strip.character.size()) {
    throw spec.error("\"content\" must be one character");
  }
  if (strip.start < 0 || strip.stop < 0)
    throw spec.error("\"start\" and \"stop\" must be at least 0");
  if (!fused_) {
    steps_.emplace_back().strip = std::move(strip);
  } else if (strip_) {
    spec.unsupported("a second Strip decoder after Fuse");
  } else {
    strip_ = std::move(strip);
  }
}

std::string TokenDecoder::apply_steps(std::string text, bool first, bool after_bytes) const {
  const size_t middle = std::min(byte_stage_, steps_.size()), original_bytes = text.size();
  for (size_t i = after_bytes ? middle : 0; i < (after_bytes ? steps_.size() : middle); ++i) {
    const Step& step = steps_[i];
    if (step.replacement) {
      text = step.replacement->apply(text, original_bytes);
    } else if (step.strip) {
      std::string_view rest = text;
      strip_front(rest, step.strip->character, step.strip->start);
      strip_back(rest, step.strip->character, step.strip->stop);
      text = std::string(rest);
    } else {
      replace_all(text, step.metaspace, first && step.drop_first ? "" : " ");
    }
  }
  return text;
}

std::string TokenDecoder::bytes_of(const std::string& text, bool added) const {
  if (added || mode_ == Mode::kJoinWithSpaces) return text;
  if (mode_ == Mode::kByteLevel) return unmap_bytes(text).value_or(text);
  std::string bytes = apply_steps(text, false, false);
  if (byte_fallback_) {
    if (const auto byte = byte_token(bytes)) return std::string(1, static_cast<char>(*byte));
  }
  return apply_steps(std::move(bytes), false, true);
}

void TokenDecoder::push(const std::string& text, const std::string& bytes, DecodeState& state,
                        std::string& out) const {
  const bool first = state.tokens++ == 0;
  if (mode_ == Mode::kJoinWithSpaces) {
    if (!first) out += ' ';
    out += text;
    return;
  }
  if (mode_ == Mode::kByteLevel) {
    state.pending += bytes;
    const size_t complete = state.pending.size() - incomplete_tail(state.pending);
    emit(replace_invalid_utf8(std::string_view(state.pending).substr(0, complete)), state, out);
    state.pending.erase(0, complete);
    return;
  }
  std::string piece = apply_steps(text, first, false);
  if (byte_fallback_) {
    if (const auto byte = byte_token(piece)) {
      state.pending += static_cast<char>(*byte);
      return;
    }
    flush_bytes(state, out);
  }
  emit(apply_steps(std::move(piece), false, true), state, out);
}

// A run of byte tokens is decoded as a whole if it is valid UTF-8; otherwise each byte becomes one
// replacement character.
void TokenDecoder::flush_bytes(DecodeState& state, std::string& out) const {
  if (state.pending.empty()) return;
  std::string run;
  run.swap(state.pending);
  if (is_valid_utf8(run)) return emit(apply_steps(std::move(run), false, true), state, out);
  for (size_t i = 0; i < run.size(); ++i) {
    emit(apply_steps(std::string(kReplacementCharacter), false, true), state, out);
  }
}

void TokenDecoder::finish(DecodeState& state, std::string& out) const {
  if (mode_ == Mode::kByteLevel) {
    emit(replace_invalid_utf8(state.pending), state, out);
  } else {
    flush_bytes(state, out);
  }
  if (strip_) {
    std::string_view rest = state.held;
    strip_back(rest, strip_->character, strip_->stop);
    out += rest;
  }
  state = {};
}

// Strips the fused text: at its start until another character arrives, and at its end by holding
// back trailing characters that may turn out to be the last ones.
void TokenDecoder::emit(std::string_view text, DecodeState& state, std::string& out) const {
  if (!strip_) {
    out += text;
    return;
  }
  if (text.empty()) return;
  if (!state.started) {
    state.stripped += strip_front(text, strip_->character, strip_->start - state.stripped);
    state.started = state.stripped == strip_->start || !text.empty();
  }
  state.held += text;
  std::string_view certain = state.held;
  strip_back(certain, strip_->character,
             strip_->stop == 0 ? 0 : std::numeric_limits<int64_t>::max());
  const size_t n = certain.size();
  out += certain;
  state.held.erase(0, n);
}

}  // namespace slimexx::text

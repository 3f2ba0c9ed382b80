#include "text/bpe/bpe_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>

#include "slimexx/base/strings.h"
#include "text/bpe/bpe_cache.h"
#include "text/bpe/byte_level.h"

namespace slimexx::text {
namespace {

// Limits how sparse ids may be, so that a small file cannot take much memory.
constexpr int64_t kFreeIds = 1 << 16;
constexpr int64_t kIdsPerEntry = 16;

uint32_t next_serial() {
  static std::atomic<uint32_t> last{0};
  uint32_t serial = ++last;
  return serial == 0 ? ++last : serial;
}

size_t character_length(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return std::min(length, text.size() - at);
}

std::string byte_character(uint32_t byte) {
  std::string character;
  append_utf8(character, byte_to_character(static_cast<uint8_t>(byte)));
  return character;
}

}  // namespace

BpeModel BpeModel::build(RawTokenizer& raw, const TokenizerSpec& spec,
                         std::vector<std::string>& texts) {
  const std::string type = spec.string_or("type", "BPE");  // files of GPT-2 do not name a type
  if (type != "BPE") spec.unsupported(fmt::format("the model type {}", type));
  if (!raw.has_vocab) throw spec.error("key \"vocab\" is missing or not an object");
  if (!raw.has_merges) throw spec.error("key \"merges\" is missing or not an array");
  BpeModel model(raw.merges.size());
  model.serial_ = next_serial();
  model.byte_ids_.fill(-1);
  model.read_options(spec);
  model.add_vocab(raw, texts);
  if (const auto unknown = spec.find("unk_token")) {
    const std::string text = spec.string("unk_token");
    model.unknown_ = model.find(text);
    if (!model.unknown_) throw unknown->error(fmt::format("\"{}\" is not in the vocabulary", text));
  }
  if (model.byte_fallback_) {
    for (int byte = 0; byte < 256; ++byte) {
      model.byte_ids_[byte] = model.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    }
  }
  model.add_merges(raw);
  return model;
}

void BpeModel::read_options(const TokenizerSpec& spec) {
  if (spec.find("dropout") && spec.number("dropout") != 0.0) spec.unsupported("dropout");
  prefix_ = spec.string_or("continuing_subword_prefix", "");
  suffix_ = spec.string_or("end_of_word_suffix", "");
  fuse_unknown_ = spec.boolean_or("fuse_unk", false);
  byte_fallback_ = spec.boolean_or("byte_fallback", false);
  ignore_merges_ = spec.boolean_or("ignore_merges", false);
}

void BpeModel::add_vocab(RawTokenizer& raw, std::vector<std::string>& texts) {
  const auto where = [&](const std::string& token) {
    return fmt::format("{}: model.vocab[\"{}\"]", raw.where, token.substr(0, 200));
  };
  const int64_t limit = kFreeIds + kIdsPerEntry * static_cast<int64_t>(raw.vocab.size());
  int64_t size = 0;
  for (const auto& [token, id] : raw.vocab) {
    if (id >= limit) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the id {} is too large for {} tokens", id, raw.vocab.size()),
                  kTokenizerHint, where(token));
    }
    size = std::max(size, id + 1);
  }
  texts.resize(static_cast<size_t>(size));
  std::vector<bool> taken(texts.size());
  storage_->words.reserve(
      raw.vocab.size());  // no reallocation: the map holds views of these strings
  vocab_.reserve(raw.vocab.size());
  for (auto& [token, id] : raw.vocab) {
    if (taken[id]) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the id {} is also that of \"{}\"", id, texts[id].substr(0, 200)),
                  kTokenizerHint, where(token));
    }
    taken[id] = true;
    texts[id] = token;
    storage_->words.push_back(std::move(token));
    const std::string& word = storage_->words.back();
    if (!vocab_.emplace(word, static_cast<TokenId>(id)).second) {
      throw Error(ErrorCode::kInput, "the token occurs twice", kTokenizerHint, where(word));
    }
  }
  raw.vocab = {};
  if (ignore_merges_) whole_words_ = vocab_;
}

void BpeModel::add_merges(RawTokenizer& raw) {
  std::string merged;
  for (size_t rank = 0; rank < raw.merges.size(); ++rank) {
    const auto& [left, right] = raw.merges[rank];
    const auto id_of = [&](const std::string& text) {
      const auto id = find(text);
      if (!id) {
        throw Error(ErrorCode::kInput,
                    fmt::format("\"{}\" is not in the vocabulary", text.substr(0, 200)),
                    kTokenizerHint, fmt::format("{}: model.merges[{}]", raw.where, rank));
      }
      return *id;
    };
    const TokenId left_id = id_of(left), right_id = id_of(right);
    merged.assign(left).append(right, std::min(prefix_.size(), right.size()), std::string::npos);
    merges_.insert(left_id, right_id, {static_cast<uint32_t>(rank), id_of(merged)});
  }
  raw.merges = {};
}

bool BpeModel::accepts_raw_bytes() const {
  if (!prefix_.empty() || !suffix_.empty()) return false;
  if (refuses_lost_ && !byte_fallback_) return true;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!find(byte_character(byte))) return false;
  }
  return true;
}

std::vector<uint8_t> BpeModel::lost_bytes(bool mapped) const {
  std::vector<uint8_t> lost;
  if (unknown_ || (!mapped && !byte_fallback_)) return lost;
  const auto has_token = [&](const std::string& character) {
    std::vector<TokenId> ids;
    return find(character) || (byte_fallback_ && add_byte_tokens(character, ids));
  };
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (byte == 0xC0 || byte == 0xC1 || byte > 0xF4) continue;  // never in UTF-8
    const std::string character = byte_character(byte);
    const bool kept = mapped ? has_token(character) && has_token(prefix_ + character) &&
                                   has_token(character + suffix_)
                             : byte_ids_[byte] >= 0;
    if (!kept) lost.push_back(static_cast<uint8_t>(byte));
  }
  return lost;
}

void BpeModel::refuse_lost_bytes(bool mapped) {
  refuses_lost_ = true;
  mapped_ = mapped;
}

void BpeModel::use_raw_bytes() {
  raw_bytes_ = true;
  mapped_ = false;
  for (uint32_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = find(byte_character(byte)).value_or(-1);
  if (!ignore_merges_) return;
  whole_words_.clear();
  whole_words_.reserve(vocab_.size());
  storage_->raw_words.reserve(vocab_.size());
  for (const std::string& word : storage_->words) {
    auto raw = unmap_bytes(word);
    if (!raw) continue;
    storage_->raw_words.push_back(std::move(*raw));
    whole_words_.emplace(storage_->raw_words.back(), vocab_.at(word));
  }
}

void BpeModel::exclude_whole_word(TokenId id) {
  if (static_cast<size_t>(id) >= excluded_.size()) excluded_.resize(static_cast<size_t>(id) + 1);
  excluded_[id] = true;
}

std::optional<TokenId> BpeModel::find(std::string_view text) const {
  const auto found = vocab_.find(text);
  if (found == vocab_.end()) return std::nullopt;
  return found->second;
}

void BpeModel::encode_word(std::string_view word, std::vector<TokenId>& ids) const {
  if (word.size() > WordCache::kMaxWordBytes) return encode_uncached(word, ids);
  bool hit = false;
  WordCache::Slot& slot = WordCache::of_this_thread().find(word, serial_, hit);
  if (hit) {
    ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.count);
    return;
  }
  const size_t first = ids.size();
  encode_uncached(word, ids);
  WordCache::store(slot, serial_, ids.data() + first, ids.size() - first);
}

void BpeModel::encode_uncached(std::string_view word, std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    const auto whole = whole_words_.find(word);
    if (whole != whole_words_.end()) {
      const auto id = static_cast<size_t>(whole->second);
      if (id >= excluded_.size() || !excluded_[id]) {
        ids.push_back(whole->second);
        return;
      }
    }
  }
  const size_t first = ids.size();
  if (raw_bytes_) {
    for (size_t at = 0; at < word.size(); ++at) {
      const TokenId id = byte_ids_[static_cast<uint8_t>(word[at])];
      if (id < 0) refuse_word(word, at);
      ids.push_back(id);
    }
  } else {
    add_characters(word, ids);
  }
  merge_symbols(merges_, ids, first);
}

// Keeps the reference implementation's order and its quirks. A pending unknown token is written
// before the next known character, but after byte tokens; unknown characters vanish if there is no
// unknown token.
void BpeModel::add_characters(std::string_view word, std::vector<TokenId>& ids) const {
  bool unknown_pending = false;
  std::string decorated;
  for (size_t at = 0; at < word.size();) {
    const size_t length = character_length(word, at);
    std::string_view character = word.substr(at, length);
    const bool is_first = at == 0;
    const size_t begin = at;
    at += length;
    if ((!is_first && !prefix_.empty()) || (at == word.size() && !suffix_.empty())) {
      decorated.assign(is_first ? "" : prefix_).append(character);
      if (at == word.size()) decorated += suffix_;
      character = decorated;
    }
    if (const auto id = find(character)) {
      if (unknown_pending) ids.push_back(*unknown_);
      unknown_pending = false;
      ids.push_back(*id);
    } else if (!(byte_fallback_ && add_byte_tokens(character, ids))) {
      if (refuses_lost_) refuse_word(word, begin);
      if (unknown_pending && !fuse_unknown_) ids.push_back(*unknown_);
      unknown_pending = unknown_.has_value();
    }
  }
  if (unknown_pending) ids.push_back(*unknown_);
}

// `word` is in the form that encode_word received; the byte or character at offset `at` has no
// token.
void BpeModel::refuse_word(std::string_view word, size_t at) const {
  std::string text(word);
  if (mapped_) {
    const auto before = unmap_bytes(word.substr(0, at));
    if (auto bytes = unmap_bytes(word); bytes && before) {
      text = std::move(*bytes);
      at = before->size();
    }
  } else {
    const auto has_token = [&](size_t i) { return byte_ids_[static_cast<uint8_t>(text[i])] >= 0; };
    while (at + 1 < text.size() && has_token(at)) ++at;
  }
  size_t begin = at, end = 0;  // the character that contains the byte
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
  end = begin;
  throw Error(
      ErrorCode::kInput,
      fmt::format("the text has U+{:04X}, but the tokenizer has no token for its byte 0x{:02X}",
                  next_code_point(text, end), static_cast<uint8_t>(text[at])),
      "remove the character from the text, or remove the row: the model cannot read it");
}

bool BpeModel::add_byte_tokens(std::string_view character, std::vector<TokenId>& ids) const {
  for (const char c : character) {
    if (byte_ids_[static_cast<uint8_t>(c)] < 0) return false;
  }
  for (const char c : character) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
  return true;
}

}  // namespace slimexx::text

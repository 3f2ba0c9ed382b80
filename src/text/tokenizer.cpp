#include "slimexx/text/tokenizer.h"

#include <fmt/core.h>

#include <filesystem>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"
#include "text/replacement.h"
#include "text/tokenizer_impl.h"

namespace slimexx::text {

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& directory_or_file) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(directory_or_file, ignored);
  const std::string path =
      is_directory ? join_path(directory_or_file, "tokenizer.json") : directory_or_file;
  return parse(read_text_file(path), path);
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& where) {
  return Tokenizer(Impl::build(read_tokenizer_json(json, where)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    throw Error(ErrorCode::kInput,
                fmt::format("a text of {} is too long to be tokenized in one piece",
                            format_bytes(static_cast<double>(text.size()))),
                fmt::format("split it into rows of at most {}",
                            format_bytes(static_cast<double>(kMaxTextBytes))));
  }
  std::string repaired;
  if (!is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 4 + 4);
  std::vector<TextSection> sections;
  impl_->raw_finder.split(text, options.parse_special, sections);
  WordList list;
  for (const TextSection& section : sections) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      impl_->encode_plain(section.text, section.text.data() == text.data(), options.parse_special,
                          list, ids);
    }
  }
  return ids;
}

void Tokenizer::Impl::encode_plain(std::string_view text, bool first, bool parse_special,
                                   WordList& list, std::vector<TokenId>& ids) const {
  std::string storage;
  text = normalizer.apply(text, storage);
  if (normalized_finder.empty()) return encode_words(text, first, list, ids);
  std::vector<TextSection> sections;
  normalized_finder.split(text, parse_special, sections);
  for (const TextSection& section : sections) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      encode_words(section.text, first && section.text.data() == text.data(), list, ids);
    }
  }
}

void Tokenizer::Impl::encode_words(std::string_view text, bool first, WordList& list,
                                   std::vector<TokenId>& ids) const {
  pre_tokenizer.split(text, first, list);
  for (const std::string_view word : list.words) model.encode_word(word, ids);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special_tokens) const {
  StreamDecoder stream(*this, skip_special_tokens);
  std::string out;
  for (const TokenId id : ids) stream.push(id, out);
  return out += stream.flush();
}

const std::string& Tokenizer::token_bytes(TokenId id) const {
  impl_->text_of(id);
  return impl_->bytes[id];
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(impl_->texts.size()); }

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < impl_->special.size() && impl_->special[id];
}

std::optional<TokenId> Tokenizer::token_to_id(std::string_view token) const {
  const auto added = impl_->added_ids.find(token);
  if (added != impl_->added_ids.end()) return added->second;
  return impl_->model.find(token);
}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void StreamDecoder::push(TokenId id, std::string& out) {
  const Tokenizer::Impl& impl = *tokenizer_.impl_;
  const std::string& text = impl.text_of(id);
  // An unused id of the vocabulary has no text.
  if (text.empty() || (skip_special_tokens_ && impl.special[id])) return;
  impl.decoder.push(text, impl.bytes[id], state_, out);
}

std::string StreamDecoder::flush() {
  std::string out;
  tokenizer_.impl_->decoder.finish(state_, out);
  return out;
}

}  // namespace slimexx::text

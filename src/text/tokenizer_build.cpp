// Builds a tokenizer from the parsed file.
#include <fmt/core.h>

#include <algorithm>

#include "slimexx/base/log.h"
#include "text/tokenizer_impl.h"

namespace slimexx::text {
namespace {

// Ids of added tokens may exceed the vocabulary by at most this much.
constexpr size_t kFreeAddedIds = 1 << 20;

// Logs the bytes that have no token. encode refuses text with them, since it would drop them
// silently.
void report_lost_bytes(const std::vector<uint8_t>& lost, const std::string& where) {
  constexpr size_t kShown = 16;
  std::string names;
  for (size_t i = 0; i < std::min(lost.size(), kShown); ++i)
    names += fmt::format("{}0x{:02X}", i == 0 ? "" : ", ", lost[i]);
  log_info(
      "{}: the vocabulary lacks {} of the bytes of UTF-8 text ({}{}); texts that need one are "
      "refused",
      where, lost.size(), names, lost.size() > kShown ? ", ..." : "");
}

}  // namespace

std::unique_ptr<Tokenizer::Impl> Tokenizer::Impl::build(RawTokenizer raw) {
  const TokenizerSpec root(*raw.document, raw.where, "");
  std::vector<std::string> texts;
  std::unique_ptr<Impl> impl(new Impl(BpeModel::build(raw, root.at("model"), texts)));
  impl->texts = std::move(texts);
  impl->normalizer = Normalizer::build(root.find("normalizer"));
  impl->pre_tokenizer = PreTokenizer::build(root.find("pre_tokenizer"));
  impl->decoder = TokenDecoder::build(root.find("decoder"));
  const bool mapped = impl->pre_tokenizer.maps_to_bytes() || impl->normalizer.maps_to_bytes();
  if (const auto lost = impl->model.lost_bytes(mapped); !lost.empty()) {
    report_lost_bytes(lost, raw.where);
    impl->model.refuse_lost_bytes(mapped);
  }
  impl->place_added_tokens(root);
  if (impl->pre_tokenizer.ends_in_byte_level() && impl->model.accepts_raw_bytes()) {
    impl->pre_tokenizer.leave_bytes_raw();
    impl->model.use_raw_bytes();
  }
  impl->index_added_tokens();
  impl->render_bytes();
  return impl;
}

void Tokenizer::Impl::place_added_tokens(const TokenizerSpec& root) {
  added = read_added_tokens(root);
  const size_t limit = texts.size() + kFreeAddedIds;
  for (size_t i = 0; i < added.size(); ++i) {
    const AddedToken& token = added[i];
    const auto id = static_cast<size_t>(token.id);
    const auto fail = [&](const std::string& what) {
      throw root.error(fmt::format("added_tokens[{}] (\"{}\"): {}", i, token.content, what),
                       "fix the ids: each token needs its own id");
    };
    if (id >= limit) fail(fmt::format("the id {} is too large", id));
    if (const auto known = model.find(token.content); known && *known != token.id) {
      fail(fmt::format("the id is {} here, but {} in model.vocab", id, *known));
    }
    if (id < texts.size() && !texts[id].empty() && texts[id] != token.content) {
      fail(fmt::format("the id {} is also that of \"{}\"", id, texts[id].substr(0, 200)));
    }
    if (!added_ids.emplace(token.content, token.id).second) fail("the token occurs twice");
    if (id >= texts.size()) texts.resize(id + 1);
    texts[id] = token.content;
  }
}

void Tokenizer::Impl::index_added_tokens() {
  special.assign(texts.size(), false);
  for (const AddedToken& token : added) {
    if (token.special) {
      special[token.id] = true;
      model.exclude_whole_word(token.id);
    }
    if (token.normalized) {
      std::string storage;
      normalized_finder.add(token, std::string(normalizer.apply(token.content, storage)));
    } else {
      raw_finder.add(token, token.content);
    }
  }
  raw_finder.finish();
  normalized_finder.finish();
}

void Tokenizer::Impl::render_bytes() {
  bytes.reserve(texts.size());
  for (const std::string& text : texts) bytes.push_back(decoder.bytes_of(text, false));
  for (const AddedToken& token : added) bytes[token.id] = decoder.bytes_of(token.content, true);
}

const std::string& Tokenizer::Impl::text_of(TokenId id) const {
  if (id < 0 || static_cast<size_t>(id) >= texts.size()) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("the token id {} is not in 0..{}", id, static_cast<int64_t>(texts.size()) - 1),
        "these ids belong to another tokenizer");
  }
  return texts[id];
}

}  // namespace slimexx::text

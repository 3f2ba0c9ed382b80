#include "text/added_tokens.h"

#include <fmt/core.h>

#include <algorithm>

#include "slimexx/base/strings.h"
#include "text/regex/char_class.h"

namespace slimexx::text {
namespace {

// Bounds the work at each position of the text; published tokens have fewer than 60 bytes.
constexpr size_t kMaxContentBytes = 512;

bool ends_with_word(std::string_view text) {
  if (text.empty()) return false;
  size_t at = previous_character(text, text.size());
  return is_word(next_code_point(text, at));
}

bool starts_with_word(std::string_view text) {
  size_t at = 0;
  return !text.empty() && is_word(next_code_point(text, at));
}

size_t space_before(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    const size_t start = previous_character(text, end);
    size_t at = start;
    if (!is_white_space(next_code_point(text, at))) break;
    end = start;
  }
  return std::max(begin, end);
}

size_t space_after(std::string_view text, size_t end) {
  while (end < text.size()) {
    size_t at = end;
    if (!is_white_space(next_code_point(text, at))) break;
    end = at;
  }
  return end;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const TokenizerSpec& root) {
  std::vector<AddedToken> tokens;
  if (!root.find("added_tokens")) return tokens;
  for (const TokenizerSpec& spec : root.elements("added_tokens")) {
    AddedToken token;
    const int64_t id = spec.integer("id");
    token.content = spec.string("content");
    token.special = spec.boolean_or("special", false);
    token.normalized = spec.boolean_or("normalized", !token.special);
    token.lstrip = spec.boolean_or("lstrip", false);
    token.rstrip = spec.boolean_or("rstrip", false);
    token.single_word = spec.boolean_or("single_word", false);
    if (token.content.empty()) throw spec.error("the content is empty", "remove the entry");
    if (token.content.size() > kMaxContentBytes) {
      throw spec.error(fmt::format("the content is longer than {} bytes", kMaxContentBytes));
    }
    if (id < 0 || id > INT32_MAX) throw spec.error(fmt::format("the id {} is out of range", id));
    token.id = static_cast<TokenId>(id);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder() = default;

void AddedTokenFinder::add(const AddedToken& token, const std::string& pattern) {
  if (!pattern.empty()) patterns_.emplace_back(pattern, &token);
}

void AddedTokenFinder::finish() {
  // If patterns are equal, the first one counts.
  std::stable_sort(patterns_.begin(), patterns_.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  patterns_.erase(std::unique(patterns_.begin(), patterns_.end(),
                              [](const auto& a, const auto& b) { return a.first == b.first; }),
                  patterns_.end());
  for (const auto& [pattern, token] : patterns_) starts_[static_cast<uint8_t>(pattern[0])] = true;
  if (!patterns_.empty()) add_node(0, patterns_.size(), 0);
}

// Adds the node for the sorted patterns [low, high), which share their first `depth` bytes.
uint32_t AddedTokenFinder::add_node(size_t low, size_t high, size_t depth) {
  const auto index = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back();
  if (patterns_[low].first.size() == depth) nodes_[index].token = patterns_[low++].second;
  std::vector<size_t> cuts;
  for (size_t i = low; i < high; ++i) {
    if (i == low || patterns_[i].first[depth] != patterns_[i - 1].first[depth]) cuts.push_back(i);
  }
  const size_t first = edges_.size();
  nodes_[index].first_edge = static_cast<uint32_t>(first);
  nodes_[index].edge_count = static_cast<uint32_t>(cuts.size());
  edges_.resize(first + cuts.size());
  for (size_t i = 0; i < cuts.size(); ++i) {
    const size_t end = i + 1 < cuts.size() ? cuts[i + 1] : high;
    const auto byte = static_cast<uint8_t>(patterns_[cuts[i]].first[depth]);
    const uint32_t child = add_node(cuts[i], end, depth + 1);  // grows edges_
    edges_[first + i] = {byte, child};
  }
  return index;
}

const AddedToken* AddedTokenFinder::match(std::string_view text, size_t at, size_t& length) const {
  const AddedToken* best = nullptr;
  const Node* node = &nodes_[0];
  for (size_t i = at; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const Edge* edge = edges_.data() + node->first_edge;
    const Edge* end = edge + node->edge_count;
    while (edge != end && edge->byte != byte) ++edge;
    if (edge == end) break;
    node = &nodes_[edge->node];
    if (node->token != nullptr) {
      best = node->token;
      length = i + 1 - at;
    }
  }
  return best;
}

void AddedTokenFinder::split(std::string_view text, bool parse_special,
                             std::vector<TextSection>& sections) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !patterns_.empty();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    size_t length = 0;
    const AddedToken* token = match(text, at, length);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + length;
    at = end;
    if (token->special && !parse_special) continue;
    if (token->single_word &&
        (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) {
      continue;
    }
    // As in the tokenizers library: a token cannot strip white space that the previous token
    // stripped. A token of white space may be empty after that, and is then dropped.
    if (token->lstrip) begin = space_before(text, done, begin);
    if (token->rstrip) end = space_after(text, end);
    if (begin >= end) continue;
    if (begin > done) sections.push_back({text.substr(done, begin - done), -1});
    sections.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) sections.push_back({text.substr(done), -1});
}

}  // namespace slimexx::text

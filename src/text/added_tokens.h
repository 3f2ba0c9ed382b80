// The tokens that are cut out of the text before the model sees it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/text/tokenizer.h"
#include "text/tokenizer_spec.h"

namespace slimexx::text {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;  // looked for in the normalized text, by its own normalized content
  bool lstrip = false;      // swallows the white space before it
  bool rstrip = false;
  bool single_word = false;  // not inside a word
};

std::vector<AddedToken> read_added_tokens(const TokenizerSpec& root);

// A stretch of text: one added token (id >= 0) or what lies between two (id -1).
struct TextSection {
  std::string_view text;
  TokenId id;
};

// Finds tokens by a trie: the leftmost, of those the longest.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  // `pattern` is the text to look for. The token must outlive the finder.
  void add(const AddedToken& token, const std::string& pattern);
  void finish();
  bool empty() const { return patterns_.empty(); }

  // Appends the sections of `text` in order. Special tokens are passed over if !parse_special.
  void split(std::string_view text, bool parse_special, std::vector<TextSection>& sections) const;

 private:
  struct Node {
    uint32_t first_edge = 0, edge_count = 0;
    const AddedToken* token = nullptr;
  };
  struct Edge {
    uint8_t byte;
    uint32_t node;
  };
  const AddedToken* match(std::string_view text, size_t at, size_t& length) const;
  uint32_t add_node(size_t low, size_t high, size_t depth);

  std::vector<std::pair<std::string, const AddedToken*>> patterns_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  bool starts_[256] = {};
};

}  // namespace slimexx::text

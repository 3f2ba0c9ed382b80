// Added tokens: the tokens that are cut out of the text before the BPE model sees it.
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
  bool normalized = false;  // search the normalized text for the normalized content
  bool lstrip = false;      // strips the white space before it (rstrip: after it)
  bool rstrip = false;
  bool single_word = false;  // does not match inside a word
};

std::vector<AddedToken> read_added_tokens(const TokenizerSpec& root);

// A section of text: one added token (id >= 0) or the text between two of them (id -1).
struct TextSection {
  std::string_view text;
  TokenId id;
};

// Finds tokens with a trie: the leftmost match, and the longest at that position.
class AddedTokenFinder {
 public:
  AddedTokenFinder();
  // `pattern` is the text to search for. The token must outlive the finder.
  void add(const AddedToken& token, const std::string& pattern);
  void finish();
  bool empty() const { return patterns_.empty(); }

  // Appends the sections of `text` in order. Ignores special tokens if !parse_special.
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

// The "pre_tokenizer" of tokenizer.json: cuts a section of text into the words that the model
// encodes one by one.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_spec.h"

namespace slimexx::text {

// Words of one section, views of the section's text or of `storage`.
struct WordList {
  std::vector<std::string_view> words;
  std::vector<std::string_view> scratch;
  std::deque<std::string> storage;
};

class PreTokenizer {
 public:
  static PreTokenizer build(const std::optional<TokenizerSpec>& spec);
  PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Whether the last step writes bytes in the byte-level alphabet. With leave_bytes_raw() it does
  // not, for a model that takes them raw.
  bool ends_in_byte_level() const;
  void leave_bytes_raw();
  bool maps_to_bytes() const;  // whether any step does

  // `at_text_start`: the section is the first of its text.
  void split(std::string_view section, bool at_text_start, WordList& list) const;

 private:
  struct Step;
  static void add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps);
  std::vector<Step> steps_;
};

}  // namespace slimexx::text

// The "pre_tokenizer" of tokenizer.json: splits a section of text into the words that the model
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

// Words of one section, as views of the section's text or of `storage`.
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

  // Whether only the last step maps bytes to the byte-level alphabet. leave_bytes_raw() turns this
  // mapping off, for a model that accepts raw bytes.
  bool ends_in_byte_level() const;
  void leave_bytes_raw();
  bool maps_to_bytes() const;  // whether any step maps bytes

  // `at_text_start`: the section is the first of its text.
  void split(std::string_view section, bool at_text_start, WordList& list) const;

 private:
  struct Step;
  static void add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps);
  std::vector<Step> steps_;
};

}  // namespace slimexx::text

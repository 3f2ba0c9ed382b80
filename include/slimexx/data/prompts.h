// Prompts with labels from JSON lines, rendered, tokenized and filtered at load time, and the
// source that draws them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/data/order.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::data {

struct PromptOptions {
  // JSON lines, possibly compressed (.zst); a suffix "@[start:end]" keeps those rows, with the
  // rules of Python slices.
  std::string prompt_data;
  std::string input_key = "prompt";  // a string, or a list of messages
  std::string label_key = "label";   // empty: no labels
  std::string tool_key = "tools";    // a list, or a string of JSON; for the chat template
  bool apply_chat_template = false;
  std::shared_ptr<const Json> apply_chat_template_kwargs;  // an object, or null
  bool rollout_shuffle = false;
  int64_t seed = 42;
  int64_t rollout_max_prompt_len = 0;  // longer prompts are dropped; 0: no limit
  std::string max_prompt_len_key =
      "rollout.rollout_max_prompt_len";  // the key that sets this limit, for messages
  // Throws Error(kInput) for metadata that the run cannot use; empty: any metadata is accepted.
  std::function<void(const std::shared_ptr<const Json>& metadata)> check_metadata;
};

// A label as text: a string as it is, null as empty, any other JSON value as its JSON. A list of
// texts, numbers and truth values holds the accepted answers: it becomes a list of texts.
std::string label_text(const Json& label);

// Token ids in one to three bytes each, for sets of millions of prompts.
class PackedTokens {
 public:
  PackedTokens() = default;
  explicit PackedTokens(const std::vector<text::TokenId>& ids);  // none below 0
  size_t size() const { return size_; }
  std::vector<text::TokenId> unpack() const;
  bool operator==(const PackedTokens&) const = default;

 private:
  std::string bytes_;  // LEB128
  size_t size_ = 0;
};

struct Prompt {
  int64_t index = 0;        // row in the file, blank lines not counted
  int64_t line_number = 0;  // in the file, from 1
  PackedTokens tokens;
  std::string text;   // the text that was tokenized; for a row of tokens, their decoding
  std::string label;  // see label_text
  std::shared_ptr<const Json> metadata;  // the row's other keys as an object; null if it has none
};

class PromptSet {
 public:
  // Drops rows whose prompt is too long. Any other row that cannot be used throws Error(kInput) at
  // file:line; a set without rows throws too. A row may have {"tokens": [ids]} in place of
  // input_key. The tokenizer may be null if all rows have tokens, the template if
  // apply_chat_template is off. Rendering and tokenizing run on the thread pool.
  static PromptSet load(const PromptOptions& options, const text::Tokenizer* tokenizer,
                        const text::ChatTemplate* chat_template);

  const std::vector<Prompt>& prompts() const { return prompts_; }
  int64_t size() const { return static_cast<int64_t>(prompts_.size()); }
  int64_t num_dropped() const { return num_dropped_; }  // because they are too long
  int64_t longest() const { return longest_; }          // tokens of the longest prompt
  // Hash of the numbers and lines of the kept rows, as they are in the file.
  const std::string& content_hash() const { return content_hash_; }
  const std::string& path() const { return path_; }  // of the file, without a slice
  std::string where(const Prompt& prompt) const;     // "path:line"

 private:
  std::vector<Prompt> prompts_;
  int64_t num_dropped_ = 0, longest_ = 0;
  std::string content_hash_, path_;
};

using PromptCursor = Cursor;

class PromptSource {
 public:
  PromptSource(std::shared_ptr<const PromptSet> set, const PromptOptions& options);

  // The next k prompts; they live as long as the set.
  std::vector<const Prompt*> draw(int64_t k);
  const PromptCursor& cursor() const { return order_.cursor(); }
  void restore(const PromptCursor& cursor) { order_.restore(cursor); }
  const PromptSet& set() const { return *set_; }

 private:
  std::shared_ptr<const PromptSet> set_;
  EpochOrder order_;
};

}  // namespace slimexx::data

// Examples of supervised fine-tuning from JSON lines: token ids and their loss mask.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::data {

struct SftOptions {
  std::string prompt_data;                // like PromptOptions::prompt_data
  std::string messages_key = "messages";  // rows {"messages": [...]} ...
  std::string input_key = "prompt";       // ... or {"prompt": text or messages, "response": text}
  std::string response_key = "response";
  std::string tool_key = "tools";
  bool apply_chat_template = true;  // false: concatenates prompt and response unchanged
  std::shared_ptr<const Json> apply_chat_template_kwargs;  // an object, or null
  int64_t max_len = 0;  // longer examples are dropped; 0: no limit
  // The tokens that end a turn in generation. Such a token directly after a trained turn is trained
  // with the turn. If a trained turn ends the text without such a token, the first of eos_ids is
  // appended and trained. Empty: no end of a turn is trained.
  std::vector<text::TokenId> eos_ids;
};

struct SftExample {
  int64_t index = 0;  // row in the file, blank lines not counted
  std::vector<text::TokenId> tokens;
  std::vector<uint8_t> loss_mask;  // same length as tokens; 1: the token is trained
  std::string text;                // the text that was tokenized
};

class SftSet {
 public:
  // Tokenizes the whole rendered text. Tokens that begin within an assistant's text are trained.
  // This text is the {% generation %} spans of the template if it has them. Otherwise it is, turn
  // by turn, the text that the reply adds to the conversation rendered with a generation prompt.
  // Throws Error(kInput) if the template does not simply append the reply. "step_loss_mask": 0 in a
  // message excludes its turn. The end of a turn is trained too (SftOptions::eos_ids); GLM's
  // templates, for example, end a turn only by the next turn's <|user|>. Drops and refuses rows
  // like PromptSet::load.
  static SftSet load(const SftOptions& options, const text::Tokenizer& tokenizer,
                     const text::ChatTemplate* chat_template);

  const std::vector<SftExample>& examples() const { return examples_; }
  int64_t size() const { return static_cast<int64_t>(examples_.size()); }
  int64_t num_dropped() const { return num_dropped_; }
  const std::string& content_hash() const { return content_hash_; }

 private:
  std::vector<SftExample> examples_;
  int64_t num_dropped_ = 0;
  std::string content_hash_;
};

}  // namespace slimexx::data

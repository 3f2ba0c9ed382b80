// Tokenizer and chat template of a checkpoint folder, for verbs that accept text or chats.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::cli {

class PromptText {
 public:
  explicit PromptText(const std::string& directory);
  const text::Tokenizer* tokenizer() const { return side_.tokenizer.get(); }

  // Throws Error(kInput) if the folder has no tokenizer.
  std::vector<int32_t> encode(const std::string& text) const;
  // Renders the folder's chat template with `variables`; "messages" must be a list of objects with
  // a role. Throws Error(kInput) if the folder has no template.
  std::string render(const Json& variables) const;

 private:
  std::string directory_;
  rl::TextSide side_;
};

}  // namespace slimexx::cli

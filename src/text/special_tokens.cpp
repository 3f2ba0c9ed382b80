#include "text/special_tokens.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"

namespace slimexx::text {
namespace {

using TokenMap = std::map<std::string, std::string>;

constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
// Keys of objects with further named tokens, such as "image_token".
constexpr const char* kNamedTokens[] = {"model_specific_special_tokens", "extra_special_tokens"};

// A token is a text, or an object with the text under "content". Any other value removes the token
// of that name.
void set_token(const std::string& name, const Json& value, TokenMap& tokens) {
  const bool has_content = value.is_object() && value.contains("content");
  const Json& text = has_content ? value["content"] : value;
  if (text.is_string()) {
    tokens[name] = text.get<std::string>();
  } else {
    tokens.erase(name);
  }
}

void add_tokens(const Json& file, TokenMap& tokens) {
  constexpr std::string_view kSuffix = "_token";
  for (const auto& [name, value] : file.items())
    if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) set_token(name, value, tokens);
  for (const char* key : kNamedTokens) {
    const auto named = file.find(key);
    if (named == file.end() || !named->is_object()) continue;
    for (const auto& [name, value] : named->items()) set_token(name, value, tokens);
  }
}

Json read_object(const std::string& directory, const char* name) {
  const std::string path = join_path(directory, name);
  if (!path_exists(path)) return Json::object();
  Json object = parse_json_file(path, kMaxFileBytes);
  if (object.is_object()) return object;
  throw Error(ErrorCode::kInput, "not a JSON object", "fetch the file again", path);
}

}  // namespace

Json merge_special_tokens(const Json& config, const Json& map) {
  TokenMap tokens;
  add_tokens(config, tokens);
  if (!config.contains("added_tokens_decoder")) add_tokens(map, tokens);
  Json object = Json::object();
  // Do not use operator[]: ordered_json searches linearly for a key, and the keys here are unique
  // already.
  auto& members = object.get_ref<Json::object_t&>();
  for (const auto& [name, text] : tokens) members.emplace_back(name, text);
  return object;
}

Json read_special_tokens(const std::string& directory) {
  return merge_special_tokens(read_object(directory, "tokenizer_config.json"),
                              read_object(directory, "special_tokens_map.json"));
}

}  // namespace slimexx::text

#include "slimexx/text/text_files.h"

#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"
#include "text/special_tokens.h"

namespace slimexx::text {
namespace {

constexpr const char* kByteLevel = "byte-level";
constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kTemplateFolder = "additional_chat_templates";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr const char* kSpecialTokensMap = "special_tokens_map.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

// Text files that a checkpoint folder may have.
constexpr const char* kTextFiles[] = {kTokenizerFile,      kTokenizerConfig,     kSpecialTokensMap,
                                      "added_tokens.json", "vocab.json",         "merges.txt",
                                      kTemplateFile,       "chat_template.json", kGenerationConfig};

const std::vector<std::string> kByteLevelSpecials = {"<|endoftext|>", "<|system|>", "<|user|>",
                                                     "<|assistant|>"};

// {% generation %} marks the text of the assistant, for the loss mask of supervised training.
constexpr const char* kByteLevelTemplate =
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}{{ '<|assistant|>' }}"
    "{% generation %}{{ message['content'] + '<|endoftext|>' }}{% endgeneration %}"
    "{% elif message['role'] == 'system' %}{{ '<|system|>' + message['content'] }}"
    "{% else %}{{ '<|user|>' + message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}";

// Tokens that end a turn or a text, for tokenizers whose files do not name one.
constexpr const char* kKnownEnds[] = {"<|endoftext|>",   "<|im_end|>", "<|eot_id|>",
                                      "<|end_of_text|>", "</s>",       "<|observation|>"};

std::map<std::string, std::string> read_sources(const std::string& tokenizer) {
  if (tokenizer == kByteLevel) {
    return {{kTokenizerFile, make_byte_level_tokenizer_json(kByteLevelSpecials)},
            {kTemplateFile, kByteLevelTemplate}};
  }
  if (!std::filesystem::is_directory(tokenizer)) {
    return {{kTokenizerFile, read_text_file(tokenizer, kMaxFileBytes)}};
  }
  std::map<std::string, std::string> files;
  for (const char* name : kTextFiles) {
    const std::string path = join_path(tokenizer, name);
    if (path_exists(path)) files[name] = read_text_file(path, kMaxFileBytes);
  }
  std::error_code ignored;
  const auto templates = std::filesystem::path(tokenizer) / kTemplateFolder;
  for (const auto& entry : std::filesystem::directory_iterator(templates, ignored)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = join_path(kTemplateFolder, entry.path().filename().string());
    files[name] = read_text_file(entry.path().string(), kMaxFileBytes);
  }
  if (!files.contains(kTokenizerFile)) {
    throw Error(ErrorCode::kInput, "the folder has no tokenizer.json",
                "give a folder with a tokenizer.json, a file, or byte-level", tokenizer);
  }
  return files;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    const auto id = tokenizer.token_to_id(token);
    if (!id) {
      throw Error(ErrorCode::kUsage, fmt::format("the tokenizer has no token \"{}\"", token),
                  "use one of its special tokens", "--eos-token");
    }
    ids.push_back(*id);
  }
  return ids;
}

// Reads eos_token from tokenizer_config.json or special_tokens_map.json; empty if there is none.
std::string eos_of_files(const TextFiles& text) {
  const auto read = [&](const char* name) {
    const auto file = text.files.find(name);
    if (file == text.files.end()) return Json(Json::object());
    Json json = parse_json(file->second, name);
    return json.is_object() ? json : Json(Json::object());
  };
  return merge_special_tokens(read(kTokenizerConfig), read(kSpecialTokensMap))
      .value("eos_token", "");
}

std::vector<int32_t> known_ends(const Tokenizer& tokenizer) {
  std::vector<std::string> found;
  for (const char* end : kKnownEnds) {
    const auto id = tokenizer.token_to_id(end);
    if (id && tokenizer.is_special(*id)) found.emplace_back(end);
  }
  // A GLM turn ends where the token of the next role begins.
  if (!found.empty() && found.back() == "<|observation|>" && tokenizer.token_to_id("<|user|>")) {
    found.emplace_back("<|user|>");
  }
  return ids_of(tokenizer, found);
}

std::vector<int32_t> find_ends(const TextSources& sources, const TextFiles& text,
                               const Tokenizer& tokenizer) {
  if (!sources.eos_tokens.empty()) return ids_of(tokenizer, sources.eos_tokens);
  if (const auto id = tokenizer.token_to_id(eos_of_files(text))) return {*id};
  return known_ends(tokenizer);
}

// Lets transformers find the class and the end token.
std::string make_tokenizer_config(const Tokenizer& tokenizer, const std::vector<int32_t>& ends) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  if (!ends.empty()) {
    config["eos_token"] = tokenizer.token_bytes(ends.front());
    config["pad_token"] = tokenizer.token_bytes(ends.front());
  }
  return config.dump(2) + "\n";
}

std::string make_generation_config(const std::vector<int32_t>& ends) {
  Json config = Json::object();
  config["eos_token_id"] = ends.size() == 1 ? Json(ends.front()) : Json(ends);
  config["pad_token_id"] = ends.front();
  return config.dump(2) + "\n";
}

void add_chat_template(const TextSources& sources, TextFiles& text) {
  if (!sources.chat_template.empty()) {
    text.files[kTemplateFile] = read_text_file(sources.chat_template, kMaxFileBytes);
  }
  const auto it = text.files.find(kTemplateFile);
  if (it == text.files.end()) return;
  ChatTemplate::parse(it->second,
                      sources.chat_template.empty() ? kTemplateFile : sources.chat_template);
}

}  // namespace

TextFiles collect_text_files(const TextSources& sources) {
  TextFiles text;
  if (sources.tokenizer.empty()) {
    if (sources.eos_tokens.empty() && sources.chat_template.empty()) return text;
    throw Error(ErrorCode::kUsage, "--eos-token and --chat-template need a tokenizer",
                "add --tokenizer DIR, FILE or byte-level", "slimexx init");
  }
  if (sources.tokenizer != kByteLevel && !path_exists(sources.tokenizer)) {
    const auto nearest = nearest_name(sources.tokenizer, {kByteLevel});
    throw Error(
        ErrorCode::kUsage, "no such tokenizer folder or file",
        nearest ? "did you mean byte-level?" : "give a folder, a tokenizer.json, or byte-level",
        sources.tokenizer);
  }
  text.files = read_sources(sources.tokenizer);
  const Tokenizer tokenizer = Tokenizer::parse(text.files[kTokenizerFile], sources.tokenizer);
  text.vocab_size = tokenizer.vocab_size();
  add_chat_template(sources, text);
  const bool has_ends = sources.eos_tokens.empty() && text.files.contains(kGenerationConfig);
  if (has_ends) return text;
  text.eos_token_ids = find_ends(sources, text, tokenizer);
  if (!text.files.contains(kTokenizerConfig)) {
    text.files[kTokenizerConfig] = make_tokenizer_config(tokenizer, text.eos_token_ids);
  }
  if (!text.eos_token_ids.empty()) {
    text.files[kGenerationConfig] = make_generation_config(text.eos_token_ids);
  }
  return text;
}

}  // namespace slimexx::text

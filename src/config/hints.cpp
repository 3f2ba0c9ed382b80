#include "config/hints.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool same_path(const std::vector<FieldInfo>& fields, std::string_view path) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const FieldInfo& field) { return field.path == path; });
}

// The first field whose name or slime flag is `word` in any spelling; null if there is none.
const FieldInfo* find_field(const std::string& word, const KnownFields& known) {
  const std::string name = dash_name(word), flag = "--" + name;
  for (size_t i = 0; i < known.fields.size(); ++i)
    if (known.flags[i] == flag || dash_name(last_part(known.fields[i].path)) == name)
      return &known.fields[i];
  return nullptr;
}

std::optional<std::string> hint_slime(const std::string& path, const KnownFields& known) {
  const std::string word = last_part(path);
  const FieldInfo* field = find_field(word, known);
  if (field == nullptr) return std::nullopt;
  if (last_part(field->path) == word)
    return fmt::format("that key belongs to another section: {}", field->path);
  return fmt::format("that is slime's flag --{}; the key here is {}", dash_name(word),
                     key_of_flag(dash_name(word), field->path));
}

std::optional<std::string> hint_foreign(const std::string& path,
                                        const std::vector<FieldInfo>& fields) {
  const std::string word = last_part(path);
  for (const ForeignName& foreign : foreign_names()) {
    const bool whole = path == foreign.name || path.ends_with("." + std::string(foreign.name));
    if ((whole || word == foreign.name) && same_path(fields, foreign.key))
      return fmt::format("{} is the name in {}; the key here is {}", foreign.name, foreign.owner,
                         foreign.key);
  }
  return std::nullopt;
}

// The hint for features of other frameworks that this program does not have.
std::optional<std::string> hint_missing(const std::string& path) {
  const std::string word = to_lower_ascii(last_part(path));
  for (const char* name : {"lora", "peft", "load_in_4bit", "load_in_8bit"})
    if (word.find(name) != std::string::npos)
      return "LoRA and QLoRA are not supported: all weights are trained; leave the key out";
  return std::nullopt;
}

// Whether `word` abbreviates a name of several words, as "tp" or "tp_size" abbreviate
// tensor_model_parallel_size. Its letters are initials of the words in order, from the first word.
bool is_abbreviation(std::string word, const std::string& name) {
  constexpr size_t kMostLetters = 4;
  constexpr std::string_view kSize = "_size";
  if (word.ends_with(kSize)) word.resize(word.size() - kSize.size());
  if (word.size() < 2 || word.size() > kMostLetters || word[0] != name[0]) return false;
  size_t matched = 0;
  for (size_t i = 0; i < name.size() && matched < word.size(); ++i)
    if ((i == 0 || name[i - 1] == '_') && name[i] == word[matched]) ++matched;
  return matched == word.size();
}

// The key for the name `path` of another framework; empty if there is none.
std::string translate(const std::string& path, const KnownFields& known) {
  const std::string word = last_part(path);
  const auto find_foreign = [&](const auto& matches) -> std::string {
    for (const ForeignName& foreign : foreign_names())
      if (matches(foreign) && same_path(known.fields, foreign.key)) return std::string(foreign.key);
    return "";
  };
  std::string key = find_foreign([&](const ForeignName& foreign) {
    return foreign.name.find('.') != std::string_view::npos &&
           path.ends_with("." + std::string(foreign.name));
  });
  if (!key.empty()) return key;
  if (const FieldInfo* field = find_field(word, known))
    return key_of_flag(dash_name(word), field->path);
  return find_foreign([&](const ForeignName& foreign) { return foreign.name == word; });
}

}  // namespace

const std::vector<ForeignName>& foreign_names() {
  static const std::vector<ForeignName> names = {
#define SLX_FOREIGN(owner, name, key) {owner, name, key},
#include "config/flags/foreign_names.def"
#undef SLX_FOREIGN
  };
  return names;
}

std::string key_of_flag(const std::string& flag, const std::string& path) {
  const bool negates = flag.starts_with("disable-") && !last_part(path).starts_with("disable_");
  return negates ? path + ": false" : path;
}

KnownFields collect_known(std::vector<FieldInfo> fields) {
  KnownFields known{std::move(fields), {}};
  for (const FieldInfo& field : known.fields) known.flags.push_back(slime_flag(field));
  return known;
}

const KnownFlag* find_keyless_flag(const std::string& path, const KnownFields& known) {
  const std::string word = last_part(path);
  if (find_field(word, known) != nullptr) return nullptr;
  const KnownFlag* flag = find_flag(word);
  return flag == nullptr || flag->status == FlagStatus::kKey ? nullptr : flag;
}

FlagRefusal refuse_flag(const KnownFlag& flag, const std::string& value) {
  const std::string text(flag.text);
  std::string taken;
  if (!flag.values.empty())
    for (const std::string& one : split(flag.values, '|'))
      taken += (taken.empty() ? "" : " or ") + one;
  switch (flag.status) {
    case FlagStatus::kLater:
      return {"planned: " + text,
              "leave it out" + (taken.empty() ? "" : ", or set it to " + taken)};
    case FlagStatus::kPythonOnly:
      return {"needs Python or a server, but this program has neither", "instead: " + text};
    default:
      return {fmt::format("is {}, but only {} is possible", value, taken), text};
  }
}

std::string hint_unknown_section(const std::vector<std::string>& leaves, const KnownFields& known) {
  constexpr int kMaxTranslated = 12;
  std::string text;
  int num_translated = 0;
  for (const std::string& leaf : leaves) {
    const std::string key = translate(leaf, known);
    if (key.empty()) continue;
    if (++num_translated > kMaxTranslated) return text + ", ...";
    text += fmt::format("{}{} is {}", text.empty() ? "here " : ", ", last_part(leaf), key);
  }
  return text;
}

std::string hint_unknown_key(const std::string& path, const KnownFields& known,
                             const std::vector<std::string>& sections) {
  const std::vector<FieldInfo>& fields = known.fields;
  if (same_path(fields, path))
    return fmt::format("nest it: {}: {{{}: ...}}", path.substr(0, path.rfind('.')),
                       last_part(path));
  if (auto hint = hint_slime(path, known)) return *hint;
  if (auto hint = hint_foreign(path, fields)) return *hint;
  if (auto hint = hint_missing(path)) return *hint;
  std::vector<std::string> near = sections, all;
  const std::string section = path.substr(0, path.size() - last_part(path).size());
  for (const FieldInfo& field : fields) {
    if (field.path.starts_with(section)) near.push_back(field.path);
    all.push_back(last_part(field.path));
  }
  // Compare without the common section, which would make all names look near.
  std::vector<std::string> siblings;
  for (const auto& name : near)
    if (name.starts_with(section)) siblings.push_back(name.substr(section.size()));
  if (const auto name = nearest_name(last_part(path), siblings))
    return fmt::format("did you mean {}{}?", section, *name);
  for (const std::string& name : siblings)
    if (is_abbreviation(last_part(path), name))
      return fmt::format("did you mean {}{}?", section, name);
  constexpr size_t kLeastTelling = 4;  // shorter words are near too many names
  if (last_part(path).size() < kLeastTelling) return "";
  if (const auto name = nearest_name(last_part(path), all))
    for (const FieldInfo& field : fields)
      if (last_part(field.path) == *name) return fmt::format("did you mean {}?", field.path);
  return "";
}

}  // namespace slimexx::config

#include "config/hints.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

struct ForeignName {
  std::string_view owner, name, key;
};

const ForeignName kForeignNames[] = {
#define SLX_FOREIGN(owner, name, key) {owner, name, key},
#include "config/foreign_names.def"
#undef SLX_FOREIGN
};

// Every flag a user may have typed for slime, without the leading dashes.
const std::vector<std::string>& typed_flags() {
  static const std::vector<std::string> flags = {
#define SLX_SLIME(name) name,
#define SLX_MEGATRON(name) name,
#define SLX_SGLANG(name) "sglang-" name,
#include "config/slime_flags.def"
#undef SLX_SLIME
#undef SLX_MEGATRON
#undef SLX_SGLANG
  };
  return flags;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string replace_all(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// "--rollout-batch-size", "rollout-batch-size" and "rollout_batch_size" are one name.
std::string as_flag(std::string word) {
  while (word.starts_with('-')) word.erase(0, 1);
  return replace_all(std::move(word), '_', '-');
}

bool same_path(const std::vector<FieldInfo>& fields, std::string_view path) {
  return std::any_of(fields.begin(), fields.end(),
                     [&](const FieldInfo& field) { return field.path == path; });
}

std::optional<std::string> hint_slime(const std::string& path,
                                      const std::vector<FieldInfo>& fields) {
  const std::string word = last_part(path);
  const std::string flag = as_flag(word);
  for (const FieldInfo& field : fields) {
    const std::string theirs = slime_flag(field);
    if (theirs != "--" + flag && replace_all(last_part(field.path), '_', '-') != flag) continue;
    if (word.find('-') != std::string::npos || last_part(field.path) != word)
      return fmt::format("that is slime's flag --{}; here it is {}", flag, field.path);
    return fmt::format("that key stands in another section: {}", field.path);
  }
  return std::nullopt;
}

std::optional<std::string> hint_foreign(const std::string& path,
                                        const std::vector<FieldInfo>& fields) {
  const std::string word = last_part(path);
  for (const ForeignName& foreign : kForeignNames) {
    const bool whole = path == foreign.name || path.ends_with("." + std::string(foreign.name));
    if ((whole || word == foreign.name) && same_path(fields, foreign.key))
      return fmt::format("{} is {}'s name; here it is {}", foreign.name, foreign.owner,
                         foreign.key);
  }
  return std::nullopt;
}

}  // namespace

const std::vector<std::string_view>& slime_flags() {
  static const std::vector<std::string_view> flags = {
#define SLX_SLIME(name) name,
#define SLX_MEGATRON(name)
#define SLX_SGLANG(name)
#include "config/slime_flags.def"
#undef SLX_SLIME
#undef SLX_MEGATRON
#undef SLX_SGLANG
  };
  return flags;
}

std::string slime_flag(const FieldInfo& field) {
  if (field.meta.slime == "-") return "";
  if (!field.meta.slime.empty())
    return field.meta.slime.starts_with("--") ? field.meta.slime : "--" + field.meta.slime;
  const std::string name = replace_all(last_part(field.path), '_', '-');
  // The engine's options lose the prefix under which slime exports them.
  if (!contains(typed_flags(), name) && contains(typed_flags(), "sglang-" + name))
    return "--sglang-" + name;
  return "--" + name;
}

std::string hint_unknown_key(const std::string& path, const std::vector<FieldInfo>& fields,
                             const std::vector<std::string>& sections) {
  if (same_path(fields, path))
    return fmt::format("nest it: {}: {{{}: ...}}", path.substr(0, path.rfind('.')),
                       last_part(path));
  if (auto hint = hint_slime(path, fields)) return *hint;
  if (auto hint = hint_foreign(path, fields)) return *hint;
  std::vector<std::string> near = sections, all;
  const std::string section = path.substr(0, path.size() - last_part(path).size());
  for (const FieldInfo& field : fields) {
    if (field.path.starts_with(section)) near.push_back(field.path);
    all.push_back(last_part(field.path));
  }
  // Compared without the section they share, which would let anything pass as near.
  std::vector<std::string> siblings;
  for (const auto& name : near)
    if (name.starts_with(section)) siblings.push_back(name.substr(section.size()));
  if (const auto name = nearest_name(last_part(path), siblings))
    return fmt::format("did you mean {}{}?", section, *name);
  if (const auto name = nearest_name(last_part(path), all))
    for (const FieldInfo& field : fields)
      if (last_part(field.path) == *name) return fmt::format("did you mean {}?", field.path);
  if (contains(typed_flags(), as_flag(last_part(path))))
    return fmt::format("that is slime's flag --{}, which slimexx does not have",
                       as_flag(last_part(path)));
  return "";
}

}  // namespace slimexx::config

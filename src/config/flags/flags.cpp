#include "config/flags/flags.h"

#include <algorithm>
#include <map>

#include "config/numbers.h"
#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

constexpr std::string_view kPrefix = "sglang-";  // slime's prefix for SGLang's options

// Whether two values are the same word or the same number, such as 0 and 0.0.
bool same_value(const std::string& one, const std::string& other) {
  if (to_lower_ascii(one) == to_lower_ascii(other)) return true;
  std::string reason;
  const auto left = parse_real(one, reason), right = parse_real(other, reason);
  return left && right && *left == *right;
}

bool is_sglang(const KnownFlag& flag) { return flag.owner == "SGLang"; }

// Whether find_flag() may find the flag. It does not find keys of the --sglang-config file and
// flags of tools, which have no configuration key.
bool is_looked_up(const KnownFlag& flag) {
  return flag.owner == "slime" || flag.owner == "Megatron" || is_sglang(flag);
}

// Flags by full name, and SGLang's also by short name if no other flag has that name. Excludes
// the short name "config", which is too general.
std::map<std::string, const KnownFlag*> index_flags() {
  std::map<std::string, const KnownFlag*> index;
  for (const KnownFlag& flag : known_flags())
    if (is_looked_up(flag)) index.emplace(typed_name(flag), &flag);
  for (const KnownFlag& flag : known_flags())
    if (is_sglang(flag) && flag.name != "config") index.emplace(flag.name, &flag);
  return index;
}

}  // namespace

const std::vector<KnownFlag>& known_flags() {
  static const std::vector<KnownFlag> flags = {
#define SLX_KEY(owner, name) {owner, name, FlagStatus::kKey, "", ""},
#define SLX_NOT_NEEDED(owner, name, values, why) {owner, name, FlagStatus::kNotNeeded, values, why},
#define SLX_LATER(owner, name, values, what) {owner, name, FlagStatus::kLater, values, what},
#define SLX_PYTHON(owner, name, instead) {owner, name, FlagStatus::kPythonOnly, "", instead},
#include "config/flags/flags_megatron.def"
#include "config/flags/flags_sglang.def"
#include "config/flags/flags_slime.def"
#undef SLX_KEY
#undef SLX_NOT_NEEDED
#undef SLX_LATER
#undef SLX_PYTHON
  };
  return flags;
}

std::string typed_name(const KnownFlag& flag) {
  return (is_sglang(flag) ? std::string(kPrefix) : "") + std::string(flag.name);
}

const KnownFlag* find_flag(const std::string& word) {
  static const std::map<std::string, const KnownFlag*> by_name = index_flags();
  const auto found = by_name.find(dash_name(word));
  return found == by_name.end() ? nullptr : found->second;
}

bool takes_value(const KnownFlag& flag, const std::string& value) {
  if (flag.values.empty()) return flag.status == FlagStatus::kNotNeeded;
  const std::vector<std::string> taken = split(flag.values, '|');
  return std::any_of(taken.begin(), taken.end(),
                     [&](const std::string& one) { return same_value(one, value); });
}

std::string dash_name(std::string word) {
  while (word.starts_with('-')) word.erase(0, 1);
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

std::string slime_flag(const FieldInfo& field) {
  if (field.meta.slime == "-") return "";
  if (!field.meta.slime.empty()) return "--" + dash_name(field.meta.slime);
  const std::string name = dash_name(field.path.substr(field.path.rfind('.') + 1));
  const KnownFlag* flag = find_flag(name);
  return "--" + (flag == nullptr ? name : typed_name(*flag));
}

}  // namespace slimexx::config

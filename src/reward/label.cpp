#include "reward/label.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

Label fault_of(std::string fault) { return {{}, std::move(fault)}; }

Label read_list(const std::string& label, const Json& list) {
  if (list.empty()) return fault_of("the label is an empty list: it accepts no answer");
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (std::ranges::all_of(list, is_text)) return {list.get<std::vector<std::string>>(), ""};
  if (list.size() == 1 && list[0].is_number()) return {{list[0].dump()}, ""};
  // Keep lists of numbers as text: [1, 2] is an interval, a point or a matrix.
  const bool is_value = std::ranges::none_of(list, [](const Json& item) {
    return item.is_object() || item.is_null() || item.is_string();
  });
  if (is_value) return {{label}, ""};
  return fault_of(
      "the label is a list with items that are not answers; write a list of strings and numbers");
}

Label read_record(const Json& record) {
  std::string keys;
  for (const auto& [key, value] : record.items()) keys += (keys.empty() ? "" : ", ") + key;
  return fault_of(fmt::format(
      "the label is a record ({}), not an answer; write the answer as the label", shorten(keys)));
}

}  // namespace

Label read_answers(const std::string& label) {
  const std::string_view text = trim_space(label);
  if (text.empty() || (text[0] != '[' && text[0] != '{')) return {{label}, ""};
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_array()) return read_list(label, value);
  if (value.is_object() && !value.empty()) return read_record(value);
  const bool is_python = (text.starts_with("['") && text.ends_with("]")) ||
                         (text.starts_with("{'") && text.ends_with("}"));
  if (is_python)
    return fault_of(
        "the label is in Python syntax; write JSON, for example [\"72\"] instead of ['72']");
  return {{label}, ""};
}

}  // namespace slimexx::reward

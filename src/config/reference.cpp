#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <set>

#include "config/hints.h"
#include "slimexx/base/json.h"
#include "slimexx/config/config.h"

namespace slimexx::config {
namespace {

// A cell of a Markdown table holds no bar and no line break.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out.empty() ? "-" : out;
}

std::string code(const std::string& text) { return text.empty() ? "-" : "`" + cell(text) + "`"; }

std::string constraint(const FieldMeta& meta) {
  std::string out;
  for (const auto& choice : meta.choices) out += (out.empty() ? "" : " ") + code(choice);
  const bool low = meta.min > -std::numeric_limits<double>::infinity();
  const bool high = meta.max < std::numeric_limits<double>::infinity();
  if (low) out += fmt::format("{} {}", meta.min_exclusive ? ">" : ">=", format_double(meta.min));
  if (high) out += fmt::format("{}<= {}", low ? ", " : "", format_double(meta.max));
  return out;
}

// "rollout" of "rollout.num_rollout"; empty for a key outside all sections.
std::string section_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

void write_fields(const FieldLister& lister, const std::string& section, std::string& out) {
  out +=
      "\n| key | type | default | unit | range | slime's flag | meaning |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const FieldInfo& field : lister.fields()) {
    if (section_of(field.path) != section) continue;
    const std::string text = field.default_text == "null" ? "" : field.default_text;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", code(field.path), field.type,
                       code(text), cell(field.meta.unit), cell(constraint(field.meta)),
                       code(slime_flag(field)), cell(field.meta.doc));
  }
}

bool has_fields(const FieldLister& lister, const std::string& section) {
  return std::any_of(lister.fields().begin(), lister.fields().end(),
                     [&](const FieldInfo& field) { return section_of(field.path) == section; });
}

}  // namespace

std::string write_config_reference(const FieldLister& fields) {
  std::string out =
      "# Configuration reference\n\n"
      "Written by the program from the option lists; do not edit. A key stands in its section of "
      "the\n"
      "YAML file; `--set section.key=value` overrides it, and `null` goes back to the default. A\n"
      "default of `-` means that the key is unset.\n";
  if (has_fields(fields, "")) write_fields(fields, "", out);
  for (const auto& [section, doc] : fields.sections()) {
    out += fmt::format("\n## {}\n", section);
    if (!doc.empty()) out += "\n" + doc + "\n";
    if (has_fields(fields, section)) write_fields(fields, section, out);
  }
  return out;
}

std::string write_slime_table(const FieldLister& fields) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::set<std::string> mapped;
  for (const FieldInfo& field : fields.fields()) {
    const std::string flag = slime_flag(field);
    if (flag.empty()) continue;
    rows.emplace_back(flag, field.path);
    mapped.insert(flag);
  }
  std::sort(rows.begin(), rows.end());
  std::string out =
      "# From slime's flags to slimexx's keys\n\n"
      "Written by the program from the option lists; do not edit.\n\n"
      "| slime | slimexx |\n|---|---|\n";
  for (const auto& [flag, path] : rows) out += fmt::format("| `{}` | `{}` |\n", flag, path);
  std::string rest;
  for (const std::string_view name : slime_flags()) {
    const std::string flag = fmt::format("--{}", name);
    if (!mapped.contains(flag)) rest += fmt::format("- `{}`\n", flag);
  }
  if (!rest.empty()) out += "\nFlags of slime without a key here:\n\n" + rest;
  return out;
}

}  // namespace slimexx::config

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "config/flags/flags.h"
#include "config/hints.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "slimexx/config/config.h"

namespace slimexx::config {
namespace {

// Escapes bars and line breaks, which a cell of a Markdown table must not have.
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

// "rollout" for "rollout.num_rollout"; empty for a key outside all sections.
std::string section_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

std::string describe_later(const FieldInfo& field) {
  const std::string note = "planned: " + field.meta.later;
  if (field.meta.is_detail) return note + "; any value is accepted";
  const bool unset = field.default_text == "null" || field.default_text == "\"\"";
  return note + (unset ? "" : "; only " + code(field.default_text) + " today");
}

std::string meaning(const FieldInfo& field) {
  if (field.meta.later.empty()) return field.meta.doc;
  return fmt::format("{} ({})", field.meta.doc, describe_later(field));
}

std::string looked_at(const FieldMeta& meta) {
  if (meta.when.empty()) return "";
  return meta.when + (meta.may_idle ? "; otherwise reported" : "");
}

void write_fields(const FieldLister& lister, const std::string& section, std::string& out) {
  out +=
      "\n"
      "| key | type | default | unit | range | used if | slime's flag | meaning |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const FieldInfo& field : lister.fields()) {
    if (section_of(field.path) != section) continue;
    const std::string text = field.default_text == "null" ? "" : field.default_text;
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", code(field.path), field.type,
                       code(text), cell(field.meta.unit), cell(constraint(field.meta)),
                       cell(looked_at(field.meta)), code(slime_flag(field)), cell(meaning(field)));
  }
}

bool has_fields(const FieldLister& lister, const std::string& section) {
  return std::any_of(lister.fields().begin(), lister.fields().end(),
                     [&](const FieldInfo& field) { return section_of(field.path) == section; });
}

// The keys that stand for a flag; --num-epoch has two.
std::vector<const FieldInfo*> keys_of(const FieldLister& fields, const KnownFlag& flag) {
  std::vector<const FieldInfo*> keys;
  for (const FieldInfo& field : fields.fields())
    if (slime_flag(field) == "--" + typed_name(flag)) keys.push_back(&field);
  return keys;
}

std::string taken_values(const KnownFlag& flag) {
  std::string out;
  if (!flag.values.empty())
    for (const std::string& value : split(flag.values, '|'))
      out += (out.empty() ? "" : " or ") + code(value);
  return out.empty() ? "" : "; accepted: " + out;
}

void write_flag(const FieldLister& fields, const KnownFlag& flag, std::string& out) {
  const std::string name = typed_name(flag);
  const char* status = "works";
  std::string here, note(flag.text);
  for (const FieldInfo* field : keys_of(fields, flag)) {
    here += (here.empty() ? "" : ", ") + code(key_of_flag(name, field->path));
    if (field->meta.later.empty()) continue;
    status = "later";
    note = describe_later(*field);
  }
  if (flag.status == FlagStatus::kNotNeeded) status = "not needed here";
  if (flag.status == FlagStatus::kPythonOnly) status = "Python only";
  if (flag.status == FlagStatus::kLater) {
    status = "later";
    note = "planned: " + note;
  }
  // Keys in the --sglang-config file have no leading dashes.
  const char* dashes = flag.owner == "sglang-config" ? "" : "--";
  out += fmt::format("| `{}{}` | {} | {} | {} |\n", dashes, name, status, cell(here),
                     cell(note + taken_values(flag)));
}

}  // namespace

std::string write_config_reference(const FieldLister& fields) {
  std::string out =
      "# Configuration reference\n"
      "\n"
      "Written by the program from the option lists; do not edit. A key belongs to its section of "
      "the\n"
      "YAML file; `--set section.key=value` overrides it, and `null` restores the default. A "
      "default of\n"
      "`-` means that the key is unset. The column `used if` says under which condition a key has "
      "an\n"
      "effect (`-`: always). If the condition does not hold, a value other than the default is an "
      "error;\n"
      "if the column says `otherwise reported`, the run starts and reports that the key has no "
      "effect.\n"
      "The same report replaces the error if a file sets the key, but `--set`, or a file whose "
      "`defaults:`\n"
      "names that file, has turned off the feature that the key belongs to.\n";
  if (has_fields(fields, "")) write_fields(fields, "", out);
  for (const auto& [section, doc] : fields.sections()) {
    out += fmt::format("\n## {}\n", section);
    if (!doc.empty()) out += "\n" + doc + "\n";
    if (has_fields(fields, section)) write_fields(fields, section, out);
  }
  return out;
}

std::string write_flag_reference(const FieldLister& fields) {
  std::string out = fmt::format(
      "# Flags of slime, Megatron and SGLang\n"
      "\n"
      "Written by the program from the option lists; do not edit. These are the {} flags that "
      "slime declares or that\n"
      "its recipes and model scripts pass on. If a configuration has a key with the flag's dashes "
      "or the prefix\n"
      "`sglang_`, the error names the right key.\n"
      "\n"
      "| status | meaning |\n"
      "|---|---|\n"
      "| works | the key in column `here` replaces it |\n"
      "| not needed here | accepted without effect; if the note names values, only those are "
      "accepted |\n"
      "| later | known, but not implemented: a value that enables it is refused with \"planned: "
      "...\" |\n"
      "| Python only | refused; the note says what to use instead |\n",
      known_flags().size());
  std::vector<std::string_view> owners;
  for (const KnownFlag& flag : known_flags())
    if (std::find(owners.begin(), owners.end(), flag.owner) == owners.end())
      owners.push_back(flag.owner);
  for (const std::string_view owner : owners) {
    out += fmt::format("\n## {}\n\n| flag | status | here | note |\n|---|---|---|---|\n", owner);
    for (const KnownFlag& flag : known_flags())
      if (flag.owner == owner) write_flag(fields, flag, out);
  }
  out +=
      "\n"
      "## Names of other frameworks\n"
      "\n"
      "If a configuration has an unknown key of this name, the error names the key of slimexx.\n"
      "\n"
      "| framework | name | here |\n"
      "|---|---|---|\n";
  for (const ForeignName& name : foreign_names())
    out += fmt::format("| {} | `{}` | `{}` |\n", name.owner, name.name, name.key);
  return out;
}

}  // namespace slimexx::config

#include "config/emit.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/interpolate.h"
#include "config/numbers.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/url.h"

namespace slimexx::config {
namespace {

bool is_plain_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '/' || c == '-' || c == '+' || c == '@';
}

// Whether any YAML parser reads the string back unchanged without quotes.
bool is_plain(const std::string& text) {
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_plain_char)) return false;
  const char first = text[0];
  const bool letter = (first >= 'a' && first <= 'z') || (first >= 'A' && first <= 'Z');
  if (!letter && first != '/' && !text.starts_with("./") && !text.starts_with("../")) return false;
  const std::string lower = to_lower_ascii(text);
  return lower != "true" && lower != "false" && lower != "null" && lower != "nan" &&
         lower != "inf" && !is_legacy_bool(text);
}

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (size_t position = 0; position < text.size();) {
    const uint32_t code = next_code_point(text, position);
    if (code == '"' || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029 ||
               code == 0xFEFF) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      append_utf8(out, code);
    }
  }
  return out + "\"";
}

template <class Item, class Write>
std::string join(const std::vector<Item>& items, const char* open, const char* close, Write write) {
  std::string out = open;
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + write(items[i]);
  return out + close;
}

std::string key_to_yaml(const std::string& key) { return is_plain(key) ? key : quote(key); }

std::string write_json(const Json& value) {
  std::string out;
  if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      out += (out.empty() ? "" : ", ") + quote(key) + ": " + write_json(member);
    return "{" + out + "}";
  }
  if (value.is_array()) {
    for (const auto& item : value) out += (out.empty() ? "" : ", ") + write_json(item);
    return "[" + out + "]";
  }
  if (value.is_string()) return quote(escape_references(value.get<std::string>()));
  return value.dump();
}

Json scalar_to_json(const Node& node) {
  const std::string& text = node.text;
  if (node.quoted) return text;
  if (const auto value = parse_bool(text)) return *value;
  std::string reason;
  if (text.find_first_of(".eE") == std::string::npos)
    if (const auto value = parse_whole(text, reason)) return *value;
  if (const auto value = parse_real(text, reason)) return *value;
  return text;
}

Json to_json(const Node& node) {
  switch (node.kind) {
    case NodeKind::kNull:
      return nullptr;
    case NodeKind::kScalar:
      return scalar_to_json(node);
    case NodeKind::kSequence: {
      Json list = Json::array();
      for (const Node& item : node.items) list.push_back(to_json(item));
      return list;
    }
    case NodeKind::kMap:
      break;
  }
  Json object = Json::object();
  // Not operator[]: ordered_json searches linearly, and these keys are already unique.
  auto& members = object.get_ref<Json::object_t&>();
  for (const auto& [key, child] : node.members) members.emplace_back(key, to_json(child));
  return object;
}

// Applies the limits of a file's tree to JSON in a text: the resolved configuration with larger
// JSON could not be read back. `depth` counts the maps and lists around `value`.
void check_fits(const Json& value, int depth) {
  if (!value.is_structured()) return;
  if (depth >= kMaxDepth) {
    throw Error(ErrorCode::kUsage,
                fmt::format("values are nested more than {} levels deep", kMaxDepth), "",
                "JSON in text");
  }
  for (const auto& [key, member] : value.items()) {
    if (value.is_object() && (key.empty() || key.size() > kMaxKeyBytes)) {
      throw Error(ErrorCode::kUsage, fmt::format("a key of {} bytes is not allowed", key.size()),
                  "", "JSON in text");
    }
    check_fits(member, depth + 1);
  }
}

struct Section {
  std::string name, value;
  std::vector<Section> children;
};

void write_section(const Section& section, int indent, std::string& out) {
  for (const Section& child : section.children) {
    out += std::string(static_cast<size_t>(indent), ' ') + key_to_yaml(child.name) + ":";
    if (child.children.empty()) {
      out += " " + child.value + "\n";
    } else {
      out += "\n";
      write_section(child, indent + 2, out);
    }
  }
}

constexpr char kVariable = '\x01';

// The address after its scheme, with each ${env:NAME} replaced by kVariable. ${env:NAME:-default}
// stays, because its default is in the file.
std::string flatten_references(std::string_view text) {
  const size_t scheme = text.find("://");
  if (scheme != std::string_view::npos) text.remove_prefix(scheme + 3);
  std::string flat;
  for (size_t i = 0; i < text.size();) {
    const size_t end = text.substr(i).starts_with("${env:") ? text.find('}', i) : text.npos;
    const bool is_variable =
        end != text.npos && text.substr(i, end - i).find(":-") == std::string_view::npos;
    flat += is_variable ? kVariable : text[i];
    i = is_variable ? end + 1 : i + 1;
  }
  return flat;
}

// Whether the address has a user, password or query value that is not from a variable.
bool shows_secret(std::string_view address) {
  const std::string flat = flatten_references(address);
  const auto is_hidden = [](std::string_view part) {
    return std::ranges::all_of(part, [](char c) { return c == kVariable; });
  };
  const size_t at = flat.rfind('@');
  if (at != std::string::npos)
    for (const std::string& part : split(std::string_view(flat).substr(0, at), ':'))
      if (!is_hidden(part)) return true;
  const size_t query = flat.find_first_of("?#", at == std::string::npos ? 0 : at);
  if (query == std::string::npos) return false;
  for (const std::string& part : split(std::string_view(flat).substr(query + 1), '&'))
    if (!is_hidden(part.substr(part.find('=') == std::string::npos ? 0 : part.find('=') + 1)))
      return true;
  return false;
}

}  // namespace

bool has_environment(const Node& node) {
  return !node.environment.empty() || std::ranges::any_of(node.items, has_environment) ||
         std::ranges::any_of(node.members,
                             [](const Member& member) { return has_environment(member.node); });
}

std::string unexpanded_yaml(const Node& node) {
  std::string reason;
  switch (node.kind) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kScalar:
      if (!node.environment.empty()) return quote(node.unexpanded);
      if (!node.quoted && (parse_bool(node.text) || parse_real(node.text, reason) ||
                           parse_whole(node.text, reason)))
        return node.text;
      return quote(escape_references(node.text));
    case NodeKind::kSequence:
      return join(node.items, "[", "]", unexpanded_yaml);
    case NodeKind::kMap:
      break;
  }
  return join(node.members, "{", "}", [](const Member& member) {
    return key_to_yaml(member.name) + ": " + unexpanded_yaml(member.node);
  });
}

std::string address_to_yaml(const std::string& text) {
  return quote(shows_secret(text) ? hide_secrets(text) : text);
}

std::string to_yaml(int64_t value) { return std::to_string(value); }
std::string to_yaml(double value) { return std::isfinite(value) ? format_double(value) : "null"; }
std::string to_yaml(bool value) { return value ? "true" : "false"; }
std::string to_yaml(const std::string& value) {
  return is_plain(value) ? value : quote(escape_references(value));
}
std::string to_yaml(const std::optional<int64_t>& value) {
  return value ? to_yaml(*value) : "null";
}
std::string to_yaml(const std::optional<double>& value) { return value ? to_yaml(*value) : "null"; }
std::string to_yaml(const std::vector<int64_t>& value) {
  return join(value, "[", "]", [](int64_t item) { return to_yaml(item); });
}
std::string to_yaml(const std::vector<std::string>& value) {
  return join(value, "[", "]", [](const std::string& item) { return to_yaml(item); });
}
std::string to_yaml(const StringMap& value) {
  return join(value, "{", "}", [](const auto& item) {
    return key_to_yaml(item.first) + ": " + to_yaml(item.second);
  });
}
std::string json_to_yaml(const std::string& json) {
  return json.empty() ? "null" : write_json(Json::parse(json));
}

std::string node_to_json(const Node& node, int depth) {
  if (node.kind == NodeKind::kScalar) {
    const std::string_view text = trim(node.text);
    if (text.starts_with('{') || text.starts_with('[')) {
      const Json json = parse_json(node.text, "JSON in text", WideIntegers::kRefuse);
      check_fits(json, depth);
      return json.dump();
    }
  }
  return to_json(node).dump();
}

std::string nest_yaml(const std::vector<std::pair<std::string, std::string>>& values) {
  Section root;
  for (const auto& [path, value] : values) {
    Section* section = &root;
    for (const std::string& part : split(path, '.')) {
      auto& children = section->children;
      auto found = std::find_if(children.begin(), children.end(),
                                [&](const auto& child) { return child.name == part; });
      if (found == children.end()) found = children.insert(children.end(), {part, "", {}});
      section = &*found;
    }
    section->value = value;
  }
  std::string out;
  write_section(root, 0, out);
  return out;
}

}  // namespace slimexx::config

#include "config/environment.h"

#include <fmt/core.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

constexpr std::string_view kDigestPrefix = "# env ";

// FNV-1a, folded to 16 bits.
std::string digest(const char* value) {
  if (value == nullptr) return "unset";
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : std::string_view(value))
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return fmt::format("{:04x}", (hash ^ (hash >> 16) ^ (hash >> 32) ^ (hash >> 48)) & 0xFFFF);
}

}  // namespace

std::string environment_comments(const std::set<std::string>& names) {
  std::string lines;
  for (const std::string& name : names)
    if (!name.empty() && name.find_first_of(" \t\r\n") == std::string::npos)
      lines += fmt::format("{}{} {}\n", kDigestPrefix, name, digest(std::getenv(name.c_str())));
  return lines;
}

std::map<std::string, std::string> read_environment_comments(const std::string& yaml) {
  std::map<std::string, std::string> digests;
  for (const std::string& line : split(yaml, '\n')) {
    if (!line.starts_with(kDigestPrefix)) break;
    const std::vector<std::string> words = split(line.substr(kDigestPrefix.size()), ' ');
    if (words.size() == 2) digests[words[0]] = words[1];
  }
  return digests;
}

}  // namespace slimexx::config

#include "slimexx/io/owned_files.h"

#include <algorithm>
#include <set>
#include <vector>

#include "io/folder_files.h"
#include "slimexx/base/file.h"

namespace slimexx::io {
namespace {

constexpr std::string_view kSafetensors = ".safetensors", kIncomplete = ".incomplete";

// PREFIX00001-of-00002.safetensors; numbers have five digits or more.
bool is_numbered(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kOf = "-of-";
  if (!name.starts_with(prefix) || !name.ends_with(kSafetensors)) return false;
  name.remove_prefix(prefix.size());
  name.remove_suffix(kSafetensors.size());
  const size_t of = name.find(kOf);
  if (of == std::string_view::npos) return false;
  const auto is_number = [](std::string_view digits) {
    return digits.size() >= 5 && digits.find_first_not_of("0123456789") == std::string_view::npos;
  };
  return is_number(name.substr(0, of)) && is_number(name.substr(of + kOf.size()));
}

std::string_view without_ending(std::string_view name, std::string_view ending) {
  return name.ends_with(ending) ? name.substr(0, name.size() - ending.size()) : name;
}

std::set<std::string, std::less<>> list_side_names(const std::string& folder) {
  std::set<std::string, std::less<>> names = {"config.json"};
  if (folder.empty() || !path_exists(folder)) return names;
  for (const std::string& name : list_files(folder))
    if (is_side_file_name(name)) names.insert(name);
  return names;
}

}  // namespace

bool is_shard_name(std::string_view name) { return is_numbered(name, "shard-"); }

bool is_checkpoint_file(std::string_view name) {
  return is_shard_name(name) || name == kManifestName || is_side_file_name(name);
}

NameTest exported_files(const std::string& side_files_from) {
  return [side = list_side_names(side_files_from)](std::string_view name) {
    const std::string_view weights = without_ending(name, kIncomplete);
    return weights == kHfSingleName || is_numbered(weights, "model-") || name == kHfIndexName ||
           side.contains(name);
  };
}

NameTest converted_files(const std::string& side_files_from) {
  return [side = list_side_names(side_files_from)](std::string_view name) {
    return without_ending(name, kIncomplete).ends_with(kSafetensors) || name == kHfIndexName ||
           name == kManifestName || side.contains(name);
  };
}

}  // namespace slimexx::io

#include "slimexx/io/hub_names.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "slimexx/base/shell.h"

namespace slimexx::io {
namespace {

constexpr const char* kCheck = "check the path";

bool is_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < path.size() &&
         path.find('/', slash + 1) == std::string::npos && path[0] != '.' && path[0] != '~';
}

}  // namespace

std::string missing_model_hint(const std::string& path) {
  if (!is_hub_name(path)) return kCheck;
  const std::string name = quote_for_shell(path);
  return fmt::format(
      "{}; to use a model of the Hugging Face hub, download it first:\n"
      "hf download {} --local-dir {}",
      kCheck, name, name);
}

std::string missing_data_hint(const std::string& path) {
  if (!is_hub_name(path) || std::filesystem::path(path).has_extension()) return kCheck;
  return fmt::format(
      "{}; to use a data set of the Hugging Face hub, download it first:\n"
      "hf download --repo-type dataset {} --local-dir data",
      kCheck, quote_for_shell(path));
}

}  // namespace slimexx::io

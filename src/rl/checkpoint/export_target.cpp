#include "rl/checkpoint/export_target.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "rl/checkpoint/resume_check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/io/owned_files.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

constexpr const char* kConfigName = "config.json";

bool is_empty_folder(const std::string& folder) {
  std::error_code error;
  return fs::is_empty(folder, error) && !error;
}

bool is_mount_point(const std::string& folder) {
  struct stat own {
  }, above{};
  return ::stat(folder.c_str(), &own) == 0 && ::stat((folder + "/..").c_str(), &above) == 0 &&
         own.st_dev != above.st_dev;
}

// The reason why an export must not replace the folder; empty if there is none.
std::string find_obstacle(const std::string& target, const NameTest& is_own) {
  if (const std::string foreign = find_foreign(target, is_own); !foreign.empty())
    return fmt::format("holds \"{}\", which is not a file of an export of this model", foreign);
  if (path_exists(target) && !is_empty_folder(target) &&
      !path_exists(join_path(target, kConfigName)))
    return "holds files but no config.json, so it is not an earlier export";
  return {};
}

// Another model's folder may have the same file names, but is not an earlier export.
void check_model_of_target(const std::string& target, const std::string& template_directory) {
  const std::string own = join_path(template_directory, kConfigName);
  if (template_directory.empty() || !path_exists(own)) return;
  const std::string difference = find_config_difference(join_path(target, kConfigName), own);
  if (difference.empty()) return;
  throw Error(ErrorCode::kUsage, "the export folder holds another model: " + difference,
              "choose a new folder", target);
}

}  // namespace

std::string resolve_folder(const std::string& directory) {
  std::error_code error;
  const fs::path absolute = fs::absolute(directory).lexically_normal();
  const fs::path resolved = fs::weakly_canonical(absolute, error);
  const fs::path folder = error ? absolute : resolved;
  return (folder.has_filename() ? folder : folder.parent_path()).string();
}

UnfinishedFolder::UnfinishedFolder(std::string path, NameTest is_own)
    : path_(std::move(path)), is_own_(std::move(is_own)) {
  const std::string foreign = remove_own_folder(path_, is_own_);
  if (foreign.empty()) return;
  throw Error(ErrorCode::kEnvironment,
              fmt::format("the temporary folder of the export holds \"{}\"", foreign),
              "move it to another folder", path_);
}

UnfinishedFolder::~UnfinishedFolder() {
  try {
    remove_own_folder(path_, is_own_);
  } catch (const Error&) {  // leave what cannot be removed
  }
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  throw Error(ErrorCode::kEnvironment,
              fmt::format("cannot be renamed to {}: {}", to, std::strerror(errno)),
              "check the permissions, and the disk and its mount", from);
}

void put_export_in_place(const std::string& fresh, const std::string& target,
                         const NameTest& is_own) {
  const std::string obstacle = find_obstacle(target, is_own);
  if (!obstacle.empty()) {
    const std::string beside = free_path(target);
    rename_path(fresh, beside);
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("the export was written to {} instead, because the folder to replace {}",
                    beside, obstacle),
        "training is complete and nothing was removed: rename the folders as needed", target);
  }
  if (!path_exists(target) || is_empty_folder(target)) return rename_path(fresh, target);
  const std::string old = free_path(target + ".old");
  rename_path(target, old);
  rename_path(fresh, target);
  const std::string left = remove_own_folder(old, is_own);
  if (!left.empty()) log_warn("{} was not removed, because \"{}\" was added to it", old, left);
}

void check_export_target(const std::string& directory, const std::string& template_directory) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUsage, "the export folder " + what, "choose a new folder", directory);
  };
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(directory, error)) && !path_exists(directory))
    refuse("is a broken link");
  const std::string target = resolve_folder(directory);
  fs::path above = fs::path(target).parent_path();
  while (!path_exists(above) && above.has_relative_path()) above = above.parent_path();
  if (::access(above.c_str(), W_OK | X_OK) != 0) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("cannot write the export: {}: {}", above.string(), std::strerror(errno)),
        "choose another folder", directory);
  }
  const NameTest is_own = io::exported_files(template_directory);
  for (const char* suffix : {".new", ".try"}) {  // temporary names of an export
    const std::string first = target + suffix;
    if (const std::string foreign = find_foreign(first, is_own); !foreign.empty())
      refuse(fmt::format("is first written to {}, which holds \"{}\"", first, foreign));
  }
  if (!path_exists(target)) return;
  if (!fs::is_directory(target)) refuse("is a file");
  if (is_mount_point(target))
    refuse("is the root folder of a file system, which cannot be renamed");
  if (const std::string obstacle = find_obstacle(target, is_own); !obstacle.empty())
    refuse(obstacle);
  if (!is_empty_folder(target)) check_model_of_target(target, template_directory);
}

}  // namespace slimexx::rl

// Creates and removes the step folders of a run. Never writes to a complete folder: a save fills a
// new folder and renames it last. Removes only files that a save wrote.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/step_folders.h"
#include "io/folder_files.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/log.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/io/owned_files.h"

namespace slimexx::io {
namespace fs = std::filesystem;
namespace {

std::string with_suffix(const std::string& path, std::string_view suffix) {
  return path + std::string(suffix);
}

// Names of the files in the manifest and of the manifest itself; nothing if there is no manifest or
// it cannot be read.
std::optional<std::set<std::string, std::less<>>> list_manifest(const std::string& directory) {
  const std::string path = join_path(directory, kManifestName);
  if (!path_exists(path)) return std::nullopt;
  try {
    const Manifest manifest = parse_manifest(read_text_file(path), path);
    std::set<std::string, std::less<>> names = {kManifestName};
    for (const ShardInfo& shard : manifest.shards) names.insert(shard.file);
    for (const ManifestFile& file : manifest.side_files) names.insert(file.file);
    return names;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Tells which files of a step folder a save wrote: all shards, and the files that the manifest
// lists; only the shards if the manifest is unreadable. With a shard but no manifest: all files
// that an interrupted save can leave.
NameTest files_of_step(const std::string& directory) {
  if (const auto listed = list_manifest(directory))
    return
        [listed](std::string_view name) { return is_shard_name(name) || listed->contains(name); };
  const bool has_manifest = path_exists(join_path(directory, kManifestName));
  const auto names =
      has_manifest || !path_exists(directory) ? std::vector<std::string>() : list_files(directory);
  if (std::ranges::any_of(names, is_shard_name)) return is_checkpoint_file;
  return is_shard_name;
}

// Only saves make folders named step_NNNNNN.new and .old. Without a manifest, checkpoint files in
// such a folder count as written by a save, even if it has no shard.
NameTest files_of_suffixed(const std::string& directory) {
  const bool has_manifest = path_exists(join_path(directory, kManifestName));
  return has_manifest ? files_of_step(directory) : NameTest(is_checkpoint_file);
}

std::string find_foreign_in(const std::string& directory) {
  return find_foreign(directory, files_of_step(directory));
}

// Warns once per folder, because every save calls this.
void warn_of_foreign(const std::string& directory, const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  if (warned.insert(directory).second)
    log_warn("{} was not removed, because it holds \"{}\", which no save wrote", directory, name);
}

void remove_suffixed(const std::string& directory) {
  const std::string foreign = remove_own_folder(directory, files_of_suffixed(directory));
  if (!foreign.empty()) warn_of_foreign(directory, foreign);
}

void rename_folder(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) {
    throw Error(ErrorCode::kEnvironment,
                fmt::format("cannot be renamed to {}: {}", to, std::strerror(errno)),
                "check the permissions, and the disk and its mount", from);
  }
}

// Renames the folder to .old, so that it no longer counts as a checkpoint. Returns the new path.
std::string set_aside(const std::string& directory) {
  remove_suffixed(with_suffix(directory, kOldSuffix));  // left by an interrupted removal
  const std::string old = free_path(with_suffix(directory, kOldSuffix));
  rename_folder(directory, old);
  return old;
}

void remove_step(const std::string& root, const std::string& name) {
  const std::string directory = join_path(root, name);
  const std::string foreign = find_foreign_in(directory);
  if (!foreign.empty()) return warn_of_foreign(directory, foreign);
  try {
    remove_suffixed(set_aside(directory));
  } catch (const Error& error) {
    log_warn("{}: the old checkpoint cannot be removed: {}", directory, error.message());
  }
}

// Names of the folders step_NNNNNN<suffix>.
std::vector<std::string> list_suffixed(const std::string& root, std::string_view suffix) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (parse_step(name, suffix)) names.push_back(name);
  }
  return names;
}

// Removes the folders of interrupted saves; renames the folders of complete saves to their final
// names.
void finish_saves(const std::string& root) {
  for (const std::string& name : list_suffixed(root, kNewSuffix)) {
    const std::string directory = join_path(root, name);
    try {
      if (!path_exists(join_path(directory, kManifestName)))
        remove_suffixed(directory);
      else if (is_complete(directory))
        commit_step(root, *parse_step(name, kNewSuffix));
    } catch (const Error& error) {
      log_warn("{}", error.located_message());
    }
  }
}

int64_t step_of(const std::string& name) {
  const auto step = parse_step(name);
  return step ? *step : parse_step(name, kNewSuffix).value_or(-1);
}

std::string name_of(const std::string& checkpoint) {
  const fs::path path = fs::path(checkpoint).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

}  // namespace

std::string start_step(const std::string& root, int64_t step) {
  const std::string fresh = with_suffix(step_directory(root, step), kNewSuffix);
  const std::string foreign = remove_own_folder(fresh, files_of_suffixed(fresh));
  if (!foreign.empty()) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("the folder that a save writes to holds \"{}\", which no save wrote", foreign),
        "move the folder", fresh);
  }
  make_directories(fresh);
  return fresh;
}

void commit_step(const std::string& root, int64_t step) {
  const std::string directory = step_directory(root, step),
                    fresh = with_suffix(directory, kNewSuffix);
  const std::string foreign = find_foreign_in(directory);
  if (!foreign.empty() && !path_exists(join_path(directory, kManifestName))) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format(
            "the checkpoint stays in {}, because its folder holds \"{}\", which no save wrote",
            fresh, foreign),
        "move that folder", directory);
  }
  const std::string old = path_exists(directory) ? set_aside(directory) : "";
  rename_folder(fresh, directory);
  sync_directory(root);
  set_latest(root, name_of(directory));
  if (!old.empty()) remove_suffixed(old);
}

void remove_old(const std::string& root, int64_t keep) {
  if (keep <= 0) return;
  const std::string newest = find_latest(root);
  if (newest.empty() || newest == root) return;
  const int64_t newest_step = step_of(name_of(newest));
  int64_t kept = 0;
  for (const StepFolder& s : list_steps(root)) {
    if (s.step > newest_step) continue;  // from an abandoned branch
    if (kept < keep && s.has_manifest) {
      kept += s.step == newest_step || is_complete(join_path(root, s.name));
      continue;  // keeps a damaged step for inspection
    }
    if (!s.is_new) remove_step(root, s.name);
  }
}

std::string find_foreign_step(const std::string& root, const std::string& after) {
  for (const StepFolder& s : list_steps(root)) {
    const std::string directory = join_path(root, s.name);
    if (!s.has_manifest && s.step > step_of(name_of(after)) && !find_foreign_in(directory).empty())
      return directory;
  }
  return {};
}

void tidy_root(const std::string& root, int64_t keep, const std::string& continued) {
  remove_stale_temporaries(root, [](std::string_view name) { return name == kLatestName; });
  finish_saves(root);
  const std::string newest = find_latest(root);
  if (newest.empty() || newest == root) return;
  // Finish the removal of steps that were already renamed to .old.
  for (const std::string& name : list_suffixed(root, kOldSuffix))
    if (*parse_step(name, kOldSuffix) <= step_of(name_of(newest)))
      remove_suffixed(join_path(root, name));
  std::string name = name_of(continued);
  if (const auto step = parse_step(name, kNewSuffix)) name = name_of(step_directory(root, *step));
  if (!parse_step(name) || !path_exists(join_path(join_path(root, name), kManifestName)))
    name = name_of(newest);
  if (parse_step(name) && (name != name_of(newest) || read_latest_name(root) != name))
    set_latest(root, name);
  remove_old(root, keep);
}

}  // namespace slimexx::io

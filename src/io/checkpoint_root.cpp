#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "io/folder_files.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr const char* kLatestName = "latest";

struct StepFolder {
  int64_t step;
  std::string name;
  bool has_manifest;
};

std::optional<int64_t> parse_step(std::string_view name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kStepPrefix.size());
  if (digits.size() < 6 || digits.size() > 18) return std::nullopt;
  int64_t step = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step;
}

// Newest first. Real folders only: a link is never followed into something that is then removed.
std::vector<StepFolder> list_steps(const std::string& root) {
  std::vector<StepFolder> steps;
  std::error_code error;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    const auto step = parse_step(name);
    if (!step || !fs::is_directory(it->symlink_status(ignored))) continue;
    steps.push_back({*step, name, path_exists(join_path(it->path().string(), kManifestName))});
  }
  std::ranges::sort(steps, std::greater<>(), &StepFolder::step);
  return steps;
}

bool is_complete(const std::string& directory) {
  try {
    Checkpoint::open(directory);
    return true;
  } catch (const Error& e) {
    log_warn("{}: passed over as a checkpoint: {}", e.where(), e.message());
    return false;
  }
}

std::optional<fs::file_time_type> write_time(const std::string& path) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  return error ? std::nullopt : std::optional(time);
}

// The name in `latest`, if it is the name of a step folder.
std::string read_latest(const std::string& root) {
  const std::string path = join_path(root, kLatestName);
  if (!path_exists(path)) return {};
  const std::string name(trim(read_text_file(path, 4096)));
  if (parse_step(name)) return name;
  log_warn("{}: not the name of a checkpoint; passed over", path);
  return {};
}

void remove_step(const std::string& root, const std::string& name) {
  const std::string directory = join_path(root, name);
  std::error_code error;
  // The manifest first: what is left after a crash is no checkpoint.
  if (fs::remove(join_path(directory, kManifestName), error)) sync_directory(directory);
  if (!error) fs::remove_all(directory, error);
  if (error) log_warn("{}: cannot remove the old checkpoint: {}", directory, error.message());
}

}  // namespace

std::string step_directory(const std::string& root, int64_t step) {
  return join_path(root, fmt::format("{}{:06}", kStepPrefix, step));
}

std::string find_latest(const std::string& root) {
  if (path_exists(join_path(root, kManifestName))) return is_complete(root) ? root : "";
  const std::string latest = read_latest(root);
  const auto latest_time = write_time(join_path(root, kLatestName));
  const int64_t latest_step = latest.empty() ? -1 : *parse_step(latest);
  // `latest` decides, so that after going back to an early step the abandoned later ones stay
  // behind. A later step counts if it was completed after `latest` was written: the run died in
  // between.
  for (const StepFolder& s : list_steps(root)) {
    const std::string directory = join_path(root, s.name);
    if (s.step > latest_step && latest_step >= 0) {
      const auto time = write_time(join_path(directory, kManifestName));
      if (time && latest_time && *time < *latest_time && is_complete(join_path(root, latest)))
        continue;
    }
    if (is_complete(directory)) return directory;
  }
  return {};
}

void set_latest(const std::string& root, const std::string& step_directory_name) {
  if (!parse_step(step_directory_name)) {
    throw Error(ErrorCode::kRun,
                fmt::format("\"{}\" is not the name of a step folder", step_directory_name), "",
                root);
  }
  write_file_atomic(join_path(root, kLatestName), step_directory_name + "\n");
}

void remove_old(const std::string& root, int64_t keep) {
  if (keep <= 0) return;
  const std::string newest = find_latest(root);
  if (newest.empty() || newest == root) return;
  const int64_t newest_step = *parse_step(fs::path(newest).filename().string());
  int64_t kept = 0;
  for (const StepFolder& s : list_steps(root)) {
    if (s.step > newest_step) continue;  // being written, or of a branch that was abandoned
    if (kept < keep && s.has_manifest) {
      kept += s.step == newest_step || is_complete(join_path(root, s.name));
      continue;  // a damaged one is left for its owner to look at
    }
    remove_step(root, s.name);
  }
}

}  // namespace slimexx::io

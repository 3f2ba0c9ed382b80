#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/content_hash.h"
#include "io/folder_files.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kStepPrefix = "step_";
constexpr const char* kLatestName = "latest";
constexpr std::string_view kAbandoned = "abandoned";
constexpr uint64_t kMaxLatestBytes = uint64_t{1} << 20;

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

// The file `latest`: the name of the newest step folder, and a line "abandoned NAME HASH" for each
// later one that was complete when it was written, HASH being that of its manifest.
struct Latest {
  std::string name;
  std::map<std::string, std::string> abandoned;  // name -> hash
};

std::optional<Latest> parse_latest(std::string_view text) {
  Latest latest;
  for (const std::string& line : split(trim(text), '\n')) {
    const std::vector<std::string> words = split(trim(line), ' ');
    if (latest.name.empty() && words.size() == 1 && parse_step(words[0])) {
      latest.name = words[0];
    } else if (!latest.name.empty() && words.size() == 3 && words[0] == kAbandoned &&
               parse_step(words[1])) {
      latest.abandoned[words[1]] = words[2];
    } else {
      return std::nullopt;
    }
  }
  return latest;
}

// Empty if the file is not there or, with a warning, if it is anything else.
Latest read_latest(const std::string& root) {
  const std::string path = join_path(root, kLatestName);
  if (!path_exists(path)) return {};
  std::string fault = "not the name of a checkpoint";
  try {
    if (auto latest = parse_latest(read_text_file(path, kMaxLatestBytes))) return *latest;
  } catch (const Error& e) {
    fault = e.message();
  }
  log_warn("{}: {}; passed over", path, fault);
  return {};
}

std::string manifest_hash(const std::string& root, const std::string& name) {
  return hash_file(join_path(join_path(root, name), kManifestName));
}

void remove_step(const std::string& root, const std::string& name) {
  const std::string directory = join_path(root, name);
  std::error_code error;
  // The manifest first: what a crash leaves is then not a checkpoint.
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
  const Latest latest = read_latest(root);
  // The highest step is the newest, even if the run died before `latest` could name it, except for
  // steps that were abandoned by going back to an earlier one.
  for (const StepFolder& s : list_steps(root)) {
    const std::string directory = join_path(root, s.name);
    const auto abandoned = latest.abandoned.find(s.name);
    if (s.has_manifest && abandoned != latest.abandoned.end() &&
        abandoned->second == manifest_hash(root, s.name) &&
        is_complete(join_path(root, latest.name)))
      continue;
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
  std::string text = step_directory_name + "\n";
  for (const StepFolder& s : list_steps(root)) {
    if (s.step > *parse_step(step_directory_name) && s.has_manifest)
      text += fmt::format("{} {} {}\n", kAbandoned, s.name, manifest_hash(root, s.name));
  }
  write_file_atomic(join_path(root, kLatestName), text);
}

void tidy_root(const std::string& root, int64_t keep) {
  remove_stale_temporaries(root);
  const std::string newest = find_latest(root);
  if (newest.empty() || newest == root) return;
  const std::string name = fs::path(newest).filename().string();
  if (read_latest(root).name != name) set_latest(root, name);
  remove_old(root, keep);
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

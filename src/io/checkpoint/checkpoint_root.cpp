#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/checkpoint/step_folders.h"
#include "io/content_hash.h"
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
constexpr const char* kCheckpointsName = "checkpoints";  // in a run's folder
constexpr std::string_view kAbandoned = "abandoned";
constexpr uint64_t kMaxLatestBytes = uint64_t{1} << 20;

// The file `latest`: the name of the newest step folder, and a line "abandoned NAME HASH" for each
// later step that was complete when `latest` was written. HASH is the hash of that step's manifest.
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
               (parse_step(words[1]) || parse_step(words[1], kNewSuffix))) {
      latest.abandoned[words[1]] = words[2];
    } else {
      return std::nullopt;
    }
  }
  return latest;
}

// Empty if the file does not exist; also empty, with a warning, if it is malformed.
Latest read_latest(const std::string& root) {
  const std::string path = join_path(root, kLatestName);
  if (!path_exists(path)) return {};
  std::string fault = "not the name of a checkpoint";
  try {
    if (auto latest = parse_latest(read_text_file(path, kMaxLatestBytes))) return *latest;
  } catch (const Error& e) {
    fault = e.message();
  }
  log_warn("{}: {}; skipped", path, fault);
  return {};
}

std::string manifest_hash(const std::string& root, const std::string& name) {
  return hash_file(join_path(join_path(root, name), kManifestName));
}

}  // namespace

std::optional<int64_t> parse_step(std::string_view name, std::string_view suffix) {
  if (!name.starts_with(kStepPrefix) || !name.ends_with(suffix)) return std::nullopt;
  name.remove_suffix(suffix.size());
  const std::string_view digits = name.substr(kStepPrefix.size());
  if (digits.size() < 6 || digits.size() > 18) return std::nullopt;
  int64_t step = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return std::nullopt;
    step = step * 10 + (c - '0');
  }
  return step;
}

std::vector<StepFolder> list_steps(const std::string& root) {
  std::vector<StepFolder> steps;
  std::error_code error;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    const bool is_new = name.ends_with(kNewSuffix);
    const auto step = parse_step(name, is_new ? kNewSuffix : "");
    if (!step || !fs::is_directory(it->symlink_status(ignored))) continue;
    const bool has_manifest = path_exists(join_path(it->path().string(), kManifestName));
    if (has_manifest || !is_new) steps.push_back({*step, name, has_manifest, is_new});
  }
  std::ranges::sort(steps, std::greater<>(),
                    [](const StepFolder& s) { return std::pair(s.step, s.is_new); });
  return steps;
}

bool is_complete(const std::string& directory) {
  try {
    Checkpoint::open(directory);
    return true;
  } catch (const Error& e) {
    log_warn("{}: skipped as a checkpoint: {}", e.where(), e.message());
    return false;
  }
}

std::string read_latest_name(const std::string& root) { return read_latest(root).name; }

std::string step_directory(const std::string& root, int64_t step) {
  return join_path(root, fmt::format("{}{:06}", kStepPrefix, step));
}

std::string find_latest(const std::string& root) {
  if (path_exists(join_path(root, kManifestName))) return is_complete(root) ? root : "";
  const Latest latest = read_latest(root);
  // The newest is the highest step that is not abandoned, even if the run died before it could
  // update `latest`.
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

std::string find_checkpoint(const std::string& folder) {
  if (!path_exists(folder)) return {};
  std::string found = find_latest(folder);
  if (found.empty()) found = find_latest(join_path(folder, kCheckpointsName));
  return found;
}

}  // namespace slimexx::io

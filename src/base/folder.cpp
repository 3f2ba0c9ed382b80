#include "slimexx/base/folder.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"

namespace slimexx {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";  // in the names of OutputFile's temporaries

struct Temporary {
  std::string_view name;  // its final name; empty: not a temporary
  pid_t pid = 0;
};

// Parses NAME.tmp.<pid>.
Temporary parse_temporary(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || mark == 0) return {};
  const std::string_view digits = name.substr(mark + kTemporaryMark.size());
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  if (!is_whole || pid <= 0) return {};
  return {name.substr(0, mark), pid};
}

bool is_own_name(std::string_view name, const NameTest& is_own) {
  const Temporary temporary = parse_temporary(name);
  return is_own(name) || (!temporary.name.empty() && is_own(temporary.name));
}

struct Entry {
  std::string name;
  bool is_file;  // a regular file, not a link
};

// Sorted by name; empty if the folder does not exist.
std::vector<Entry> list_entries(const std::string& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    entries.push_back(
        {it->path().filename().string(), fs::is_regular_file(it->symlink_status(ignored))});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw Error(ErrorCode::kEnvironment,
                fmt::format("the folder cannot be listed: {}", error.message()),
                "check the permissions, and the disk and its mount", folder);
  }
  std::ranges::sort(entries, {}, &Entry::name);
  return entries;
}

[[noreturn]] void fail_to_remove(const std::string& path, int error) {
  throw Error(ErrorCode::kEnvironment, fmt::format("cannot be removed: {}", std::strerror(error)),
              "check the write permissions", path);
}

std::string last_part(const std::string& path) {
  const fs::path normal = fs::path(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

}  // namespace

std::string find_foreign(const std::string& folder, const NameTest& is_own) {
  std::error_code ignored;
  const auto status = fs::symlink_status(folder, ignored);
  if (!fs::exists(status)) return {};
  if (!fs::is_directory(status)) return last_part(folder);
  for (const Entry& entry : list_entries(folder))
    if (!entry.is_file || !is_own_name(entry.name, is_own)) return entry.name;
  return {};
}

std::string remove_own_folder(const std::string& folder, const NameTest& is_own) {
  if (std::string foreign = find_foreign(folder, is_own); !foreign.empty()) return foreign;
  remove_own_files(folder, is_own);
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return {};
  const int error = errno;
  const std::vector<Entry> left = list_entries(folder);  // added since the check
  if (left.empty()) fail_to_remove(folder, error);
  return left.front().name;
}

void remove_own_files(const std::string& folder, const NameTest& is_own) {
  for (const Entry& entry : list_entries(folder)) {
    if (!entry.is_file || !is_own_name(entry.name, is_own)) continue;
    const std::string path = join_path(folder, entry.name);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_to_remove(path, errno);
  }
}

void remove_stale_temporaries(const std::string& folder, const NameTest& is_own) {
  for (const Entry& entry : list_entries(folder)) {
    const Temporary temporary = parse_temporary(entry.name);
    if (!entry.is_file || temporary.name.empty() || !is_own(temporary.name)) continue;
    if (::kill(temporary.pid, 0) != 0 && errno == ESRCH)
      ::unlink(join_path(folder, entry.name).c_str());
  }
}

std::string free_path(const std::string& stem) {
  std::error_code ignored;
  std::string path = stem;
  for (int number = 2; fs::exists(fs::symlink_status(path, ignored)); ++number)
    path = fmt::format("{}-{}", stem, number);
  return path;
}

NewFolder::NewFolder(std::string path, NameTest is_own)
    : path_(std::move(path)), is_own_(std::move(is_own)), was_there_(path_exists(path_)) {}

NewFolder::~NewFolder() {
  if (is_kept_) return;
  try {
    remove_own_files(path_, is_own_);
  } catch (const Error&) {  // files that cannot be removed stay
  }
  if (!was_there_) ::rmdir(path_.c_str());  // fails unless it is empty
}

}  // namespace slimexx

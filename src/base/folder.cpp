#include "slimexx/base/folder.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"

namespace slimexx {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";  // as OutputFile names them

// The pid in NAME.tmp.<pid>; 0 for any other name.
pid_t writer_of(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || mark == 0) return 0;
  const std::string_view digits = name.substr(mark + kTemporaryMark.size());
  pid_t pid = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  const bool is_whole = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  return is_whole && pid > 0 ? pid : 0;
}

}  // namespace

void remove_stale_temporaries(const std::string& directory) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    const pid_t pid = writer_of(it->path().filename().string());
    if (pid == 0 || !std::filesystem::is_regular_file(it->symlink_status(ignored))) continue;
    if (::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(it->path().c_str());
  }
}

void remove_path(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error)
    throw Error(ErrorCode::kEnvironment, "cannot be removed: " + error.message(),
                "check who may write there", path);
}

NewFolder::NewFolder(std::string path) : path_(std::move(path)), was_there_(path_exists(path_)) {}

NewFolder::~NewFolder() {
  if (is_kept_) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (was_there_) std::filesystem::create_directory(path_, ignored);
}

}  // namespace slimexx

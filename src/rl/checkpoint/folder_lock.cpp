#include "slimexx/rl/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "slimexx/base/file.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

constexpr int kAttempts =
    100;  // needed while other starts fail and remove the folders that they made

// The topmost folder of the path that does not exist; empty if all do.
std::string first_missing(const fs::path& directory) {
  std::error_code ignored;
  std::string missing;
  for (fs::path folder = fs::absolute(directory).lexically_normal(); !fs::exists(folder, ignored);
       folder = folder.parent_path()) {
    if (folder.has_filename()) missing = folder.string();
    if (!folder.has_relative_path()) break;
  }
  return missing;
}

void remove_if_empty(const std::string& directory, const std::string& topmost) {
  fs::path folder = fs::absolute(directory).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  while (::rmdir(folder.c_str()) == 0 && folder != fs::path(topmost)) folder = folder.parent_path();
}

// Whether `directory` still names the open folder: a start that failed may have removed it.
bool is_in_place(int fd, const std::string& directory) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(directory.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

FolderLock::FolderLock(std::string directory, std::string first_made, int fd)
    : directory_(std::move(directory)), first_made_(std::move(first_made)), fd_(fd) {}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : directory_(std::move(other.directory_)),
      first_made_(std::exchange(other.first_made_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

std::optional<FolderLock> FolderLock::take(const std::string& directory) {
  for (int attempt = 1;; ++attempt) {
    std::string missing = first_missing(directory);
    std::error_code error;
    fs::create_directories(directory, error);
    if (error && attempt == kAttempts) make_directories(directory);  // throws with the reason
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(fd);  // leave its removal to the process that holds the lock
      return std::nullopt;
    }
    if (attempt < kAttempts && (fd < 0 || !is_in_place(fd, directory))) {
      if (fd >= 0) ::close(fd);
      continue;
    }
    return FolderLock(directory, std::move(missing), fd);
  }
}

FolderLock::~FolderLock() {
  if (!first_made_.empty()) remove_if_empty(directory_, first_made_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace slimexx::rl

#include "slimexx/rl/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "slimexx/base/file.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

// The topmost folder of the path that is not there; empty if all are.
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
  std::error_code error;
  fs::path folder = fs::absolute(directory).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  while (fs::remove(folder, error) && folder != fs::path(topmost)) folder = folder.parent_path();
}

}  // namespace

FolderLock::FolderLock(std::string directory, std::string first_made, int fd)
    : directory_(std::move(directory)), first_made_(std::move(first_made)), fd_(fd) {}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : directory_(std::move(other.directory_)),
      first_made_(std::exchange(other.first_made_, {})),
      fd_(std::exchange(other.fd_, -1)) {}

std::optional<FolderLock> FolderLock::take(const std::string& directory) {
  std::string missing = first_missing(directory);
  make_directories(directory);
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  FolderLock lock(directory, std::move(missing), fd);
  if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::nullopt;
  return lock;
}

FolderLock::~FolderLock() {
  if (!first_made_.empty()) remove_if_empty(directory_, first_made_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace slimexx::rl

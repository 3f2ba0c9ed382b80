#include "slimexx/base/file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/filled_file.h"

namespace slimexx {
namespace {

// The hint for a system error.
const char* hint_of(int error) {
  switch (error) {
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "check the path: one of its folders is a file";
    case ENAMETOOLONG:
      return "choose a shorter name or path";
    case ELOOP:
      return "check the links in the path: they form a cycle";
    case EACCES:
    case EPERM:
      return "check the permissions";
    case EROFS:
      return "the file system is read-only: choose another folder";
    case ENOSPC:
    case EDQUOT:
      return "free some disk space or choose another folder";
    case EFBIG:
      return "raise the limit (ulimit -f), or choose a file system that takes larger files";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EEXIST:
      return "choose another name, or remove the existing entry";
    default:
      return "check the disk and its mount; see also the system log";
  }
}

[[noreturn]] void fail(const std::string& action, const std::string& path, int error,
                       ErrorCode code = ErrorCode::kEnvironment) {
  throw Error(code, fmt::format("cannot {}: {}", action, std::strerror(error)), hint_of(error),
              path);
}

// A wrong input path is kInput; other failures are the host's (kEnvironment).
ErrorCode code_of_open(int error) {
  const bool is_misnamed =
      error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
  return is_misnamed ? ErrorCode::kInput : ErrorCode::kEnvironment;
}

// Returns the path that a rename may replace; for a link this is its target. Rejects folders,
// devices and pipes before any work is done: a rename would replace a device for all its users.
std::string replaceable(std::string path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  using enum std::filesystem::file_type;
  if (type == directory)
    throw Error(ErrorCode::kInput, "this is a folder, but the output must be a file",
                "give a file name", path);
  if (type != regular && type != not_found && type != none && type != unknown)
    throw Error(ErrorCode::kInput, "this is a device or pipe, but the output must be a file",
                "give a file name; without one most results go to stdout", path);
  if (type == regular && std::filesystem::is_symlink(path, error)) {
    const auto target = std::filesystem::canonical(path, error);
    if (!error) return target.string();
  }
  return path;
}

}  // namespace

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK, so that open does not block on a FIFO; it is rejected below.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail("open for reading", path_, errno, code_of_open(errno));
  struct stat info {};
  const int status = ::fstat(fd_, &info);
  if (status != 0 || !S_ISREG(info.st_mode)) {
    const int error = errno;
    ::close(fd_);
    if (status != 0) fail("read the size", path_, error);
    throw Error(ErrorCode::kInput, "not a regular file", "give the path of a file", path_);
  }
  size_bytes_ = static_cast<uint64_t>(info.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    path_ = std::move(other.path_);
    fd_ = std::exchange(other.fd_, -1);
    size_bytes_ = other.size_bytes_;
  }
  return *this;
}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::read_at(uint64_t offset, void* destination, uint64_t n) const {
  note_progress();
  auto* out = static_cast<char*>(destination);
  uint64_t done = 0;
  while (done < n) {
    const ssize_t got = ::pread(fd_, out + done, std::min<uint64_t>(n - done, 1u << 30),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path_, errno);
    if (got == 0) {
      throw Error(ErrorCode::kInput,
                  fmt::format("the file ends at byte {}, but {} bytes were expected at {}",
                              offset + done, n, offset),
                  "the file is truncated: fetch or write it again", path_);
    }
    done += static_cast<uint64_t>(got);
  }
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size_bytes() > max_bytes) {
    throw Error(
        ErrorCode::kInput,
        fmt::format("the file has {} bytes, but at most {} are read", file.size_bytes(), max_bytes),
        "check that this is the right file", path);
  }
  std::string text(file.size_bytes(), '\0');
  file.read_at(0, text.data(), text.size());
  return text;
}

OutputFile::OutputFile(std::string path)
    : path_(replaceable(std::move(path))), temporary_(fmt::format("{}.tmp.{}", path_, ::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open for writing", path_, errno);
}

OutputFile::~OutputFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* data, uint64_t n) {
  note_progress();
  const auto* in = static_cast<const char*>(data);
  uint64_t done = 0;
  while (done < n) {
    const ssize_t put = ::write(fd_, in + done, std::min<uint64_t>(n - done, 1u << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path_, errno);
    done += static_cast<uint64_t>(put);
  }
  size_bytes_ += n;
}

void OutputFile::commit() {
  // Never retry a failed fsync: it may have dropped the dirty pages.
  if (::fsync(fd_) != 0) fail("flush to disk", path_, errno);
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) fail("close", path_, errno);
  FilledFile::rename(temporary_, path_);
}

void FilledFile::create(const std::string& path, uint64_t size_bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) fail("open for writing", path, errno);
  const int status = ::ftruncate(fd, static_cast<off_t>(size_bytes));
  const int error = errno;
  ::close(fd);
  if (status != 0) fail("set the size", path, error);
}

FilledFile::FilledFile(std::string path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd_ < 0) fail("open for writing", path_, errno);
}

FilledFile::FilledFile(FilledFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FilledFile::~FilledFile() {
  if (fd_ >= 0) ::close(fd_);
}

void FilledFile::write_at(uint64_t offset, const void* data, uint64_t n) {
  const auto* in = static_cast<const char*>(data);
  uint64_t done = 0;
  while (done < n) {
    const ssize_t put = ::pwrite(fd_, in + done, std::min<uint64_t>(n - done, 1u << 30),
                                 static_cast<off_t>(offset + done));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("write", path_, errno);
    done += static_cast<uint64_t>(put);
  }
}

void FilledFile::flush() {
  if (::fsync(fd_) != 0) fail("flush to disk", path_, errno);
}

void FilledFile::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail("rename into place", to, errno);
  const auto parent = std::filesystem::path(to).parent_path();
  sync_directory(parent.empty() ? "." : parent.string());
}

void write_file_atomic(const std::string& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("make the directory", path, error.value());
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open the directory", path, errno);
  const int status = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (status != 0 && error != EINVAL) fail("flush the directory", path, error);
}

bool path_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

std::string join_path(const std::string& directory, const std::string& name) {
  return (std::filesystem::path(directory) / name).string();
}

}  // namespace slimexx

#include "observe/jsonl_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "observe/append_file.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/log.h"

namespace slimexx::observe {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw Error(ErrorCode::kEnvironment, std::string(what) + ": " + std::strerror(errno),
              "free space or choose another observe.run_dir", path);
}

// Whether a line is a row with `key` below resume_step. Drops other lines (truncated or garbage).
bool keep_line(std::string_view line, const std::string& key, int64_t resume_step) {
  try {
    const Json row = parse_json(line, "metrics.jsonl");
    return row.is_object() && json_int(row, key, "metrics.jsonl") < resume_step;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

int open_append(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) fail(path, "cannot open for appending");
  return fd;
}

void append_all(int fd, const std::string& path, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "cannot append");
    data.remove_prefix(static_cast<size_t>(n));
  }
}

bool is_in_place(int fd, const std::string& path) {
  struct stat written {
  }, named{};
  return ::fstat(fd, &written) == 0 && ::stat(path.c_str(), &named) == 0 &&
         written.st_dev == named.st_dev && written.st_ino == named.st_ino;
}

void close_append(int fd) {
  if (fd >= 0) ::close(fd);
}

void overwrite(const std::string& path, std::string text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) fail(path, "cannot open for writing");
  const off_t size = ::lseek(fd, 0, SEEK_END);
  if (size > static_cast<off_t>(text.size())) text.resize(static_cast<size_t>(size), ' ');
  const bool written =
      ::pwrite(fd, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!written) fail(path, "cannot write");
}

void trim_rows(const std::string& path, const std::string& key, int64_t resume_step) {
  if (!path_exists(path)) return;
  const std::string text = read_text_file(path);
  std::string kept;
  int64_t dropped = 0;
  for (size_t start = 0; start < text.size();) {
    const size_t end = text.find('\n', start);
    const bool torn = end == std::string::npos;
    const std::string_view line(text.data() + start, (torn ? text.size() : end) - start);
    if (!torn && keep_line(line, key, resume_step)) {
      kept.append(line).push_back('\n');
    } else {
      ++dropped;
    }
    start = torn ? text.size() : end + 1;
  }
  if (dropped == 0) return;
  write_file_atomic(path, kept);
  log_info("{}: dropped {} rows that were incomplete or from {} {} on", path, dropped, key,
           resume_step);
}

}  // namespace slimexx::observe

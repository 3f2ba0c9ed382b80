#include "slimexx/base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace slimexx {
namespace {

// Files of a container's control group (cgroup v2).
constexpr const char* kLimit = "/sys/fs/cgroup/memory.max";
constexpr const char* kUsed = "/sys/fs/cgroup/memory.current";
constexpr const char* kParts = "/sys/fs/cgroup/memory.stat";

// Reads a file with one number; -1 for "max" or an unreadable file.
int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  int64_t value = -1;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  return error == std::errc() && end == line.data() + line.size() ? value : -1;
}

// The number after the word that begins a line; -1 if no line begins with it.
int64_t number_after(const char* path, const std::string& word) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    int64_t value = 0;
    if (words >> key >> value && key == word) return value;
  }
  return -1;
}

}  // namespace

HostMemory host_memory() {
  constexpr const char* kSystem = "/proc/meminfo";
  const auto kib = [&](const char* word) {
    return std::max<int64_t>(number_after(kSystem, word), 0) * 1024;
  };
  HostMemory memory{.total_bytes = kib("MemTotal:"), .free_bytes = kib("MemAvailable:")};
  const int64_t limit = number_in(kLimit), used = number_in(kUsed);
  if (limit < 0 || used < 0 || limit >= memory.total_bytes) return memory;
  const int64_t cached_files = std::max<int64_t>(number_after(kParts, "file"), 0);
  memory.total_bytes = limit;
  memory.free_bytes =
      std::clamp<int64_t>(limit - used + cached_files, 0, std::min(memory.free_bytes, limit));
  return memory;
}

}  // namespace slimexx

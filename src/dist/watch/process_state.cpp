#include "dist/watch/process_state.h"

#include <fmt/format.h>
#include <signal.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace slimexx::dist {
namespace {

constexpr uint64_t kExiting =
    0x4;  // PF_EXITING: the process frees its memory, which may take seconds

struct ProcessStat {
  char state = '?';
  uint64_t flags = 0, start_time = 0;
};

// proc(5): pid (name) state ppid pgrp session tty_nr tpgid flags ... starttime (field 22). The name
// may contain any character, so parse from its last parenthesis.
std::optional<ProcessStat> parse_stat(const std::string& text) {
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  ProcessStat stat;
  std::string skipped;
  fields >> stat.state;
  for (int i = 4; i < 9; ++i) fields >> skipped;
  fields >> stat.flags;
  for (int i = 10; i < 22; ++i) fields >> skipped;
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  return stat;
}

std::optional<ProcessStat> read_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  return parse_stat({std::istreambuf_iterator<char>(file), {}});
}

}  // namespace

ProcessState process_state(pid_t pid, uint64_t start_time) {
  const auto stat = read_stat(pid);
  if (!stat) {  // the process is gone, or this one has too many open files
    const bool is_gone = ::kill(pid, 0) != 0 && errno == ESRCH;
    return is_gone ? ProcessState::kGone : ProcessState::kRuns;
  }
  if (stat->start_time != start_time || (stat->flags & kExiting) != 0 || stat->state == 'Z' ||
      stat->state == 'X')
    return ProcessState::kGone;
  return stat->state == 'T' ? ProcessState::kStopped : ProcessState::kRuns;
}

uint64_t start_time(pid_t pid) {
  const auto stat = read_stat(pid);
  return stat ? stat->start_time : 0;
}

std::string process_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  std::error_code error;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return boot + " " + space.string();
}

}  // namespace slimexx::dist

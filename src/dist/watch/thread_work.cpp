#include "dist/watch/thread_work.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>

namespace slimexx::dist {
namespace {

namespace fs = std::filesystem;

// Ticks (10 ms) per look. Threads that only wake up now and then to check a clock use fewer.
constexpr uint64_t kFewTicks = 2;

std::string read_entry(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool is_read_of_a_file(int64_t fd) {
  std::error_code error;
  const std::string target = fs::read_symlink(fmt::format("/proc/self/fd/{}", fd), error);
  return !target.starts_with("pipe:") && !target.starts_with("socket:") &&
         !target.starts_with("anon_inode:");
}

// /proc/.../syscall, see proc(5): "running", "-1 ..." outside a system call (such as a page fault
// on a file), otherwise the number of the system call and its arguments in hexadecimal.
bool only_waits(const std::string& text) {
  std::istringstream fields(text);
  int64_t number = -1, first = 0;
  if (!(fields >> number >> std::hex >> first >> std::ws)) return false;
  switch (number) {
    case SYS_futex:
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
    case SYS_restart_syscall:
    case SYS_ppoll:
    case SYS_pselect6:
    case SYS_epoll_pwait:
    case SYS_rt_sigtimedwait:
    case SYS_rt_sigsuspend:
    case SYS_accept:
    case SYS_accept4:
    case SYS_recvfrom:
    case SYS_recvmsg:
#ifdef SYS_pause  // these are not on every architecture
    case SYS_pause:
    case SYS_poll:
    case SYS_select:
    case SYS_epoll_wait:
#endif
      return true;
    case SYS_read:
      return !is_read_of_a_file(first);
    default:
      return false;
  }
}

// Parses the fields after "pid (name) ", from field 3 in proc(5). The name may contain any
// character.
bool parse_thread_stat(const std::string& text, char& state, uint64_t& ticks) {
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return false;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  uint64_t user = 0, system = 0;
  fields >> state;
  for (int i = 4; i < 14; ++i) fields >> skipped;
  fields >> user >> system;
  ticks = user + system;
  return static_cast<bool>(fields);
}

}  // namespace

pid_t own_tid() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

bool ThreadWork::has_worked(std::span<const pid_t> left_out) {
  bool works = false;
  uint64_t spent = 0;
  std::map<pid_t, uint64_t> now;
  std::error_code error;
  fs::directory_iterator entry("/proc/self/task", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const pid_t tid = std::atoi(entry->path().filename().c_str());
    char state = '?';
    uint64_t ticks = 0;
    if (std::ranges::find(left_out, tid) != left_out.end()) continue;
    if (!parse_thread_stat(read_entry(entry->path() / "stat"), state, ticks)) {
      works = true;  // the thread just ended, or too many files are open
      continue;
    }
    const auto before = ticks_.find(tid);
    spent += ticks - (before == ticks_.end() ? 0 : std::min(before->second, ticks));
    now[tid] = ticks;
    works = works || state != 'S' || !only_waits(read_entry(entry->path() / "syscall"));
  }
  ticks_ = std::move(now);
  return works || spent >= kFewTicks || error;
}

void OwnLooks::note() {
  const OutsideWaits waits = count_outside_waits();
  bool works =
      std::exchange(num_outside_waits_, waits.num_begun) != waits.num_begun || waits.num_open > 0;
  std::vector<pid_t> left_out;
  for (const Rank& rank : ranks_)
    if (rank.activity->is_in_call != 0) left_out.push_back(rank.tid);
  const bool are_all_in_calls = left_out.size() == ranks_.size();
  left_out.push_back(own_tid());
  if (!are_all_in_calls) works |= threads_.has_worked(left_out);
  if (works) ++ranks_.front().activity->work;
  for (const Rank& rank : ranks_) ++rank.activity->looks;
}

}  // namespace slimexx::dist

#include "dist/watch/process_state.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace slimexx::dist {
namespace {

// Sleeps until it is killed.
struct Sleeper {
  Sleeper() : pid(::fork()) {
    while (pid == 0) ::pause();
    start = start_time(pid);
  }
  ~Sleeper() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  bool comes_to(ProcessState state) const {
    for (int i = 0; i < 500; ++i) {
      if (process_state(pid, start) == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  pid_t pid;
  uint64_t start = 0;
};

TEST(ProcessState, FollowsAProcess) {
  const Sleeper sleeper;
  EXPECT_GT(sleeper.start, 0u);
  EXPECT_EQ(process_state(sleeper.pid, sleeper.start), ProcessState::kRuns);
  ::kill(sleeper.pid, SIGSTOP);
  EXPECT_TRUE(sleeper.comes_to(ProcessState::kStopped));
  ::kill(sleeper.pid, SIGCONT);
  EXPECT_TRUE(sleeper.comes_to(ProcessState::kRuns));
  ::kill(sleeper.pid, SIGKILL);
  EXPECT_TRUE(sleeper.comes_to(ProcessState::kGone)) << "a zombie is gone";
}

TEST(ProcessState, AnotherProcessOfTheNumberIsNotIt) {
  const Sleeper sleeper;
  EXPECT_EQ(process_state(sleeper.pid, sleeper.start + 1), ProcessState::kGone);
}

// A process whose state cannot be read does not count as dead.
TEST(ProcessState, TooManyOpenFilesAreNoDeath) {
  const Sleeper sleeper;
  const pid_t looker = ::fork();
  if (looker == 0) {
    rlimit none{};
    ::setrlimit(RLIMIT_NOFILE, &none);
    ::_exit(process_state(sleeper.pid, sleeper.start) == ProcessState::kRuns ? 0 : 1);
  }
  int status = -1;
  ::waitpid(looker, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace slimexx::dist

#include "dist/watch/thread_work.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace slimexx::dist {
namespace {

// Runs one thread next to the looking thread, which is not counted.
class ThreadWorkTest : public testing::Test {
 protected:
  ~ThreadWorkTest() override { end(); }
  // `work` must return when is_done is set or `release` was called.
  void start(
      std::function<void()> work, std::function<void()> release = [] {}) {
    release_ = std::move(release);
    thread_ = std::thread([this, work = std::move(work)] {
      tid_ = own_tid();
      work();
    });
    while (tid_ == 0) std::this_thread::yield();
    wait_s(0.2);
  }
  void end() {
    is_done = true;
    if (release_) std::exchange(release_, nullptr)();  // once: its captures may be gone afterwards
    if (thread_.joinable()) thread_.join();
  }
  // Looks at the thread `num_looks` times and counts the looks that saw work. The first look only
  // sets the baseline.
  int count_work(int num_looks) {
    const std::array<pid_t, 1> left_out = {own_tid()};
    work_.has_worked(left_out);
    int num = 0;
    for (int i = 0; i < num_looks; ++i) {
      wait_s(0.1);
      num += work_.has_worked(left_out) ? 1 : 0;
    }
    return num;
  }
  static void wait_s(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  pid_t tid() const { return tid_; }
  std::atomic<bool> is_done = false;

 private:
  ThreadWork work_;
  std::thread thread_;
  std::function<void()> release_;
  std::atomic<pid_t> tid_ = 0;
};

TEST_F(ThreadWorkTest, ComputingIsWork) {
  start([&] {
    while (!is_done) {
    }
  });
  EXPECT_EQ(count_work(5), 5);
  ThreadWork work;
  const std::array<pid_t, 2> both = {own_tid(), tid()};
  work.has_worked(both);
  EXPECT_FALSE(work.has_worked(both)) << "who is left out does not count";
}

TEST_F(ThreadWorkTest, SleepIsNone) {
  start([&] {
    while (!is_done) wait_s(1);
  });
  EXPECT_EQ(count_work(5), 0);
}

TEST_F(ThreadWorkTest, LockIsNone) {
  std::mutex mutex;
  mutex.lock();
  start([&] { const std::lock_guard lock(mutex); }, [&] { mutex.unlock(); });
  EXPECT_EQ(count_work(5), 0);
  end();
}

TEST_F(ThreadWorkTest, PipeThatNobodyWritesToIsNone) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  start(
      [&] {
        char c = 0;
        [[maybe_unused]] const auto n = ::read(ends[0], &c, 1);
      },
      [&] { ::close(ends[1]); });
  EXPECT_EQ(count_work(5), 0);
  end();
  ::close(ends[0]);
}

// Other slow system calls count as work: a disk or a file server may take long.
TEST_F(ThreadWorkTest, OpeningAFileIsWork) {
  const std::string path = testing::TempDir() + fmt::format("thread_work_{}", ::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  start([&] { ::close(::open(path.c_str(), O_WRONLY)); },
        [&] { ::close(::open(path.c_str(), O_RDONLY)); });
  EXPECT_EQ(count_work(5), 5);
  end();
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace slimexx::dist

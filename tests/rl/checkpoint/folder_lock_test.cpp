#include "slimexx/rl/folder_lock.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace slimexx::rl {
namespace {

namespace fs = std::filesystem;

class FolderLockTest : public testing::Test {
 protected:
  FolderLockTest()
      : root_((fs::temp_directory_path() / ("slx_lock_" + std::to_string(getpid()))).string()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  ~FolderLockTest() override { fs::remove_all(root_); }
  std::string root_;
};

TEST_F(FolderLockTest, GoesWithWhatItMade) {
  {
    const auto lock = FolderLock::take(root_ + "/a/b/c");
    ASSERT_TRUE(lock);
    EXPECT_TRUE(fs::exists(root_ + "/a/b/c"));
  }
  EXPECT_TRUE(fs::is_empty(root_));
  fs::create_directories(root_ + "/there");
  { const auto lock = FolderLock::take(root_ + "/there/new"); }
  EXPECT_TRUE(fs::is_empty(root_ + "/there"));
}

// When many processes start at once, exactly one gets the folder and keeps it.
TEST_F(FolderLockTest, RefusedStartsRemoveNothing) {
  constexpr int kProcesses = 6, kRounds = 60;
  constexpr int kRefused = 0, kHeld = 1, kLost = 2;
  int held = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::string folder = root_ + "/runs/" + std::to_string(round);
    pid_t children[kProcesses];
    for (pid_t& child : children) {
      child = fork();
      ASSERT_GE(child, 0);
      if (child > 0) continue;
      const auto lock = FolderLock::take(folder);
      if (!lock) ::_exit(kRefused);
      struct stat before {
      }, after{};
      const bool exists = ::stat(folder.c_str(), &before) == 0;
      ::usleep(3000);
      const bool stays = ::stat(folder.c_str(), &after) == 0 && before.st_ino == after.st_ino;
      ::_exit(exists && stays ? kHeld : kLost);
    }
    for (const pid_t child : children) {
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      ASSERT_NE(WEXITSTATUS(status), kLost) << "round " << round;
      held += WEXITSTATUS(status) == kHeld;
    }
  }
  EXPECT_GE(held, kRounds);
}

}  // namespace
}  // namespace slimexx::rl

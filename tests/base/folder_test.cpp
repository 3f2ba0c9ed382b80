#include "slimexx/base/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "slimexx/base/file.h"

namespace slimexx {
namespace {

namespace fs = std::filesystem;

class FolderTest : public testing::Test {
 protected:
  FolderTest() : path_((fs::temp_directory_path() / "slx_folder_XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + path_);
  }
  ~FolderTest() override { fs::remove_all(path_); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_))
      found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }
  std::string path_;
};

// A pid that was this machine's and is nobody's now.
pid_t pid_of_dead_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

TEST_F(FolderTest, RemovesTemporariesOfTheDeadOnly) {
  const pid_t dead = pid_of_dead_process();
  const std::vector<std::string> stay = {"status.json",
                                         ".tmp.1",
                                         "a.tmp.x",
                                         "a.tmp.-5",
                                         "a.tmp.99999999999",
                                         fmt::format("b.tmp.{}", getpid()),
                                         fmt::format("a.tmp.{}x", dead)};
  for (const std::string& name : stay) write_file_atomic(join_path(path_, name), "");
  const std::string stale = fmt::format("latest.tmp.{}", dead);
  write_file_atomic(join_path(path_, stale), "");
  fs::create_directory(join_path(path_, "folder.tmp." + std::to_string(dead)));
  fs::create_symlink("status.json", join_path(path_, "link.tmp." + std::to_string(dead)));
  remove_stale_temporaries(path_);
  EXPECT_EQ(names().size(), stay.size() + 2);
  EXPECT_FALSE(path_exists(join_path(path_, stale)));
  EXPECT_NO_THROW(remove_stale_temporaries(join_path(path_, "absent")));
}

TEST_F(FolderTest, NewFolderGoesUnlessItIsKept) {
  const std::string made = join_path(path_, "made");
  {
    const NewFolder folder(made);
    make_directories(join_path(made, "below"));
  }
  EXPECT_TRUE(names().empty());
  {
    NewFolder folder(made);
    make_directories(made);
    folder.keep();
  }
  EXPECT_EQ(names(), std::vector<std::string>{"made"});
  {
    const NewFolder folder(made);  // an empty one that was there
    write_file_atomic(join_path(made, "part"), "x");
  }
  EXPECT_TRUE(fs::is_empty(made));
}

}  // namespace
}  // namespace slimexx

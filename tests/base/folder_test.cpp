#include "slimexx/base/folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
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

bool is_part(std::string_view name) { return name == "part" || name.starts_with("part-"); }

// The pid of a process that has ended on this host.
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
                                         fmt::format("thesis.tmp.{}", dead),
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
  const auto is_own = [](std::string_view name) { return name != "thesis"; };
  remove_stale_temporaries(path_, is_own);
  EXPECT_EQ(names().size(), stay.size() + 2);
  EXPECT_FALSE(path_exists(join_path(path_, stale)));
  EXPECT_NO_THROW(remove_stale_temporaries(join_path(path_, "absent"), is_own));
}

TEST_F(FolderTest, OnlyAFolderOfOwnFilesIsRemoved) {
  const std::string folder = join_path(path_, "f");
  const auto fill = [&] {
    fs::remove_all(folder);
    make_directories(folder);
    for (const char* name : {"part", "part-1", "part.tmp.77", "part-2.tmp.78"})
      write_file_atomic(join_path(folder, name), "x");
  };
  fill();
  EXPECT_EQ(remove_own_folder(folder, is_part), "");
  EXPECT_FALSE(path_exists(folder));
  EXPECT_EQ(remove_own_folder(folder, is_part), "") << "absent";
  for (const char* name : {"thesis", "part.tmp.", "part.tmp.x", "Part", "thesis.tmp.77", ".part"}) {
    fill();
    write_file_atomic(join_path(folder, name), "x");
    EXPECT_EQ(find_foreign(folder, is_part), name);
    EXPECT_EQ(remove_own_folder(folder, is_part), name);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 5);
    remove_own_files(folder, is_part);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
  }
  // Entries with the name of an own file that are not regular files.
  fill();
  fs::create_directory(join_path(folder, "part-3"));
  EXPECT_EQ(remove_own_folder(folder, is_part), "part-3");
  fill();
  fs::create_symlink("part", join_path(folder, "part-4"));
  EXPECT_EQ(remove_own_folder(folder, is_part), "part-4");
  EXPECT_TRUE(path_exists(join_path(folder, "part")));
}

TEST_F(FolderTest, NeitherALinkNorAFileIsRemovedAsAFolder) {
  make_directories(join_path(path_, "f"));
  write_file_atomic(join_path(path_, "f/part"), "x");
  fs::create_directory_symlink("f", join_path(path_, "link"));
  EXPECT_EQ(remove_own_folder(join_path(path_, "link"), is_part), "link");
  write_file_atomic(join_path(path_, "part"), "x");
  EXPECT_EQ(remove_own_folder(join_path(path_, "part"), is_part), "part");
  EXPECT_EQ(names(), (std::vector<std::string>{"f", "link", "part"}));
  EXPECT_TRUE(path_exists(join_path(path_, "f/part")));
}

TEST_F(FolderTest, FreePaths) {
  const std::string stem = join_path(path_, "x");
  EXPECT_EQ(free_path(stem), stem);
  fs::create_symlink("nowhere", stem);
  EXPECT_EQ(free_path(stem), stem + "-2");
  make_directories(stem + "-2");
  EXPECT_EQ(free_path(stem), stem + "-3");
}

TEST_F(FolderTest, NewFolderGoesUnlessItIsKept) {
  const std::string made = join_path(path_, "made");
  {
    const NewFolder folder(made, is_part);
    make_directories(made);
    write_file_atomic(join_path(made, "part"), "x");
  }
  EXPECT_TRUE(names().empty());
  {
    NewFolder folder(made, is_part);
    make_directories(made);
    folder.keep();
  }
  EXPECT_EQ(names(), std::vector<std::string>{"made"});
  {
    const NewFolder folder(made, is_part);  // an existing empty folder
    write_file_atomic(join_path(made, "part"), "x");
  }
  EXPECT_TRUE(fs::is_empty(made));
  fs::remove(made);
  {
    const NewFolder folder(made, is_part);
    make_directories(join_path(made, "of another"));
    write_file_atomic(join_path(made, "part"), "x");
    write_file_atomic(join_path(made, "thesis"), "x");
  }
  EXPECT_TRUE(path_exists(join_path(made, "thesis")) && path_exists(join_path(made, "of another")));
  EXPECT_FALSE(path_exists(join_path(made, "part")));
}

}  // namespace
}  // namespace slimexx

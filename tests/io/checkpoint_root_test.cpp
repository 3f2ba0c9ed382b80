// Tests the checkpoint folder of a run: its steps, and the choice of the latest one.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "io/folder_files.h"
#include "io/saved_model.h"
#include "io/temp_dir.h"
#include "slimexx/base/file.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace {

void save_step(const TempDir& dir, int64_t step, bool set = true) {
  SavedModel().save(step_directory(dir.path(), step), 1, {{"step", step}});
  if (set)
    set_latest(dir.path(), std::filesystem::path(step_directory(dir.path(), step)).filename());
}
std::vector<std::string> steps_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(dir.path())) {
    if (e.is_directory()) names.push_back(e.path().filename());
  }
  std::ranges::sort(names);
  return names;
}
using Names = std::vector<std::string>;

TEST(CheckpointRoot, FindsTheNewestComplete) {
  const TempDir dir;
  EXPECT_EQ(find_latest(dir.path()), "");
  EXPECT_EQ(find_latest(dir.file("absent")), "");
  EXPECT_EQ(step_directory("r", 40), "r/step_000040");
  EXPECT_EQ(step_directory("r", 12345678), "r/step_12345678");
  save_step(dir, 20);
  save_step(dir, 40);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  EXPECT_EQ(find_latest(dir.file("step_000020")), dir.file("step_000020"));
  save_step(dir, 60, false);  // the run died before `latest` was replaced
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000060"));
  SavedModel().write(dir.file("step_000080"), 0, 2);  // the run died before the manifest
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000060"));
  std::filesystem::resize_file(dir.file("step_000060/shard-00000-of-00001.safetensors"), 100);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  std::filesystem::remove(dir.file("latest"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  for (const std::string& bad :
       {std::string("step_000099\n"), std::string("../../x\n"), std::string(),
        std::string("step_\n"), std::string("step_000020\nmore\n"), std::string(3 << 20, 'x'),
        std::string(100, '\0')}) {
    dir.put("latest", bad);
    EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040")) << bad.substr(0, 20);
  }
  std::filesystem::remove(dir.file("latest"));
  std::filesystem::create_directory(dir.file("latest"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
}

// Sets the file time: a copy by cp -r changes file times, so they may be in any order.
void set_hours_ago(const std::string& path, int hours) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(CheckpointRoot, TimesOfFilesDoNotDecide) {
  const TempDir dir;
  save_step(dir, 20);
  save_step(dir, 40, false);  // the run died before `latest` was replaced
  set_hours_ago(dir.file("step_000040/manifest.json"), 5);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
}

TEST(CheckpointRoot, TidiesWhatAKillLeft) {
  const TempDir dir;
  for (const int64_t step : {20, 40}) save_step(dir, step);
  save_step(dir, 60, false);  // the run died after the manifest, before `latest` and remove_old
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  dir.put("latest.tmp." + std::to_string(child), "step_0000");
  dir.put("thesis.tmp." + std::to_string(child), "x");
  tidy_root(dir.path(), 2, dir.file("step_000060"));
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000060\n");
  EXPECT_EQ(steps_in(dir), (Names{"step_000040", "step_000060"}));
  EXPECT_EQ(list_files(dir.path()), (Names{"latest", "thesis.tmp." + std::to_string(child)}));
  const TempDir empty;
  tidy_root(empty.path(), 2, "");
  EXPECT_TRUE(list_files(empty.path()).empty());
}

TEST(CheckpointState, CountersAreCounts) {
  const Json state = {
      {"zero", 0},        {"most", kMaxCounter}, {"negative", -1}, {"huge", kMaxCounter + 1},
      {"max", INT64_MAX}, {"text", "7"},         {"real", 1.0}};
  EXPECT_EQ(read_counter(state, "zero", "m"), 0);
  EXPECT_EQ(read_counter(state, "most", "m"), kMaxCounter);
  for (const char* key : {"negative", "huge", "max", "text", "real", "none"})
    expect_error(ErrorCode::kInput, key, [&] { read_counter(state, key, "m"); });
}

TEST(CheckpointRoot, GoingBackToAnEarlyStep) {
  const TempDir dir;
  for (const int64_t step : {20, 40, 60}) save_step(dir, step);
  // The user resumed from step 20; steps 40 and 60 belong to the abandoned run.
  save_step(dir, 30);
  set_hours_ago(dir.file("latest"), 5);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000030"));
  // The step is saved again, and the run dies before it updates `latest`.
  const std::string abandoned = TempDir::read_bytes(dir.file("step_000040/manifest.json"));
  SavedModel().save(start_step(dir.path(), 40), 1, {{"step", 40}, {"anew", true}});
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040.new"));
  EXPECT_EQ(TempDir::read_bytes(dir.file("step_000040/manifest.json")), abandoned) << "touched";
  std::filesystem::rename(dir.file("step_000040"), dir.file("step_000040.old"));
  EXPECT_EQ(find_latest(dir.path()),
            dir.file("step_000040.new"));  // the run died between two renames
  std::filesystem::rename(dir.file("step_000040.new"), dir.file("step_000040"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  dir.put("step_000040/manifest.json", abandoned);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000030"));
  std::filesystem::remove_all(dir.file("step_000040.old"));
  remove_old(dir.path(), 1);
  EXPECT_EQ(steps_in(dir), (Names{"step_000030", "step_000040", "step_000060"}));
}

TEST(CheckpointRoot, RemovesOld) {
  const TempDir dir;
  for (int64_t step = 1; step <= 5; ++step) save_step(dir, step);
  SavedModel().write(dir.file("step_000003x"), 0, 2);  // not a step folder
  std::filesystem::remove(dir.file("step_000004/manifest.json"));
  SavedModel().write(dir.file("step_000009"), 0, 2);  // being written
  std::filesystem::create_directory_symlink(dir.file("step_000003x"), dir.file("step_000000"));
  remove_old(dir.path(), 0);
  EXPECT_EQ(steps_in(dir).size(), 8u);
  remove_old(dir.path(), 3);
  EXPECT_EQ(steps_in(dir), (Names{"step_000000", "step_000002", "step_000003", "step_000003x",
                                  "step_000005", "step_000009"}));
  std::filesystem::resize_file(dir.file("step_000003/shard-00000-of-00001.safetensors"), 5);
  remove_old(dir.path(), 2);  // the damaged step does not count
  EXPECT_TRUE(path_exists(dir.file("step_000002/manifest.json")));
  remove_old(dir.path(), 1);
  EXPECT_EQ(steps_in(dir), (Names{"step_000000", "step_000003x", "step_000005", "step_000009"}));
  EXPECT_TRUE(path_exists(dir.file("step_000003x/shard-00000-of-00002.safetensors")));
}

// Tests every point of a save or a removal at which a run may die, and how the next run recovers.
TEST(CheckpointRoot, FinishesWhatAKillCutOff) {
  const TempDir dir;
  const auto put_back = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
      std::filesystem::remove_all(entry.path());
    save_step(dir, 20);
    save_step(dir, 40);
  };
  const auto expect_tidied = [&](const Names& names) {
    tidy_root(dir.path(), 2, dir.file("step_000040"));
    EXPECT_EQ(steps_in(dir), names);
    SavedModel().expect_in(Checkpoint::open(find_latest(dir.path())));
  };
  put_back();
  SavedModel().write(start_step(dir.path(), 60), 0, 2);
  dir.put("step_000060.new/shard-00001-of-00002.safetensors.tmp.77", "torn");
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  expect_tidied({"step_000020", "step_000040"});
  put_back();  // complete but not renamed; the run resumed from it
  SavedModel().save(start_step(dir.path(), 60), 1);
  tidy_root(dir.path(), 2, dir.file("step_000060.new/"));
  EXPECT_EQ(steps_in(dir), (Names{"step_000040", "step_000060"}));
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000060\n");
  put_back();  // half removed
  std::filesystem::rename(dir.file("step_000020"), dir.file("step_000020.old"));
  std::filesystem::remove(dir.file("step_000020.old/manifest.json"));
  expect_tidied({"step_000040"});
  put_back();  // replaced; the old one is not yet removed
  std::filesystem::copy(dir.file("step_000040"), dir.file("step_000040.old"));
  expect_tidied({"step_000020", "step_000040"});
}

TEST(CheckpointRoot, GoingBackIsOnRecordFromTheStart) {
  const TempDir dir;
  for (const int64_t step : {20, 40, 60}) save_step(dir, step);
  tidy_root(dir.path(), 0, dir.file("step_000020/"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000020"));
  EXPECT_EQ(steps_in(dir), (Names{"step_000020", "step_000040", "step_000060"}));
  tidy_root(dir.path(), 0, dir.file("step_000040"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
}

// A folder with a file that no save wrote is kept completely.
TEST(CheckpointRoot, LeavesForeignFilesAlone) {
  struct Case {
    const char *name, *file;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"a checkpoint with a note", "step_000020/notes.txt"},
           {"a checkpoint with weights", "step_000020/model.pt"},
           {"a folder in a checkpoint", "step_000020/sub/x"},
           {"another program's step", "step_000010/model.pt"},
           {"a step of plain texts", "step_000010/notes.txt"},
           {"a step of a folder", "step_000010/sub/x"},
           {"half a checkpoint and a note", "step_000030/optimizer.pt"},
           {"a shard by another name", "step_000010/shard-0.safetensors"},
           {"a shard of another program", "step_000010/shard-00001.safetensors"},
           {"beside a save", "step_000050.new/model.pt"},
           {"beside a removal", "step_000020.old/sub/x"}}) {
    SCOPED_TRACE(c.name);
    const TempDir dir;
    for (const int64_t step : {20, 30, 40, 60}) save_step(dir, step);
    std::filesystem::remove(dir.file("step_000030/manifest.json"));
    std::filesystem::create_directories(std::filesystem::path(dir.file(c.file)).parent_path());
    dir.put(c.file, "precious");
    for (int n = 0; n < 2; ++n) {
      tidy_root(dir.path(), 1, dir.file("step_000060"));
      remove_old(dir.path(), 1);
    }
    EXPECT_EQ(TempDir::read_bytes(dir.file(c.file)), "precious");
    if (std::string(c.file).starts_with("step_000020/"))
      SavedModel().expect_in(Checkpoint::open(dir.file("step_000020")));
    EXPECT_FALSE(path_exists(dir.file("step_000040")));
    EXPECT_EQ(find_latest(dir.path()), dir.file("step_000060"));
  }
}

TEST(CheckpointRoot, AStepInTheWayOfASave) {
  const TempDir dir;
  save_step(dir, 20);
  std::filesystem::create_directory(dir.file("step_000030"));
  EXPECT_EQ(find_foreign_step(dir.path()), "") << "empty";
  std::filesystem::create_directory(dir.file("step_000040"));
  dir.put("step_000040/model.pt", "precious");
  EXPECT_EQ(find_foreign_step(dir.path()), dir.file("step_000040"));
  EXPECT_EQ(find_foreign_step(dir.path(), dir.file("step_000020/")), dir.file("step_000040"));
  EXPECT_EQ(find_foreign_step(dir.path(), dir.file("step_000050")), "");
  SavedModel().save(start_step(dir.path(), 40), 1, {{"step", 40}});
  expect_error(ErrorCode::kEnvironment, "stays in", [&] { commit_step(dir.path(), 40); });
  EXPECT_EQ(TempDir::read_bytes(dir.file("step_000040/model.pt")), "precious");
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040.new")) << "it is not lost";
  tidy_root(dir.path(), 1, dir.file("step_000040.new"));
  remove_old(dir.path(), 1);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040.new"));
  std::filesystem::rename(dir.file("step_000040"), dir.file("elsewhere"));
  tidy_root(dir.path(), 1, dir.file("step_000040.new"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000040\n");
}

TEST(CheckpointRoot, TheFolderOfARunServes) {
  const TempDir dir;
  EXPECT_EQ(find_checkpoint(dir.file("absent")), "");
  EXPECT_EQ(find_checkpoint(dir.path()), "");
  SavedModel().save(dir.file("run/checkpoints/step_000020"), 1);
  EXPECT_EQ(find_checkpoint(dir.file("run")), dir.file("run/checkpoints/step_000020"));
  EXPECT_EQ(find_checkpoint(dir.file("run/checkpoints")), dir.file("run/checkpoints/step_000020"));
  EXPECT_EQ(find_checkpoint(dir.file("run/checkpoints/step_000020")),
            dir.file("run/checkpoints/step_000020"));
}

TEST(CheckpointRoot, SetsLatest) {
  const TempDir dir;
  save_step(dir, 1);
  expect_error(ErrorCode::kRun, "not the name of a step folder",
               [&] { set_latest(dir.path(), "x"); });
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000001\n");
}

}  // namespace
}  // namespace slimexx::io

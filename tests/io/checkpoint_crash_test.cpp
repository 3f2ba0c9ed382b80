// Kills, at random moments, a process that saves in a loop. Each time the newest complete
// checkpoint must open, verify, and be at least as new as the last one that the process reported.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/temp_dir.h"
#include "slimexx/base/file.h"
#include "slimexx/base/philox.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace {

constexpr int64_t kElements = 30000;
constexpr int kRanks = 3;
const std::vector<CheckpointTensor> kTensors = {{"weights", "w", tensor::DType::kI32, {kElements}},
                                                {"master", "w", tensor::DType::kI32, {kElements}}};

std::vector<int32_t> values_of(int64_t step) {
  std::vector<int32_t> values(kElements);
  for (int64_t i = 0; i < kElements; ++i) values[size_t(i)] = int32_t(i * 31 + step);
  return values;
}

void save(const std::string& root, int64_t step) {
  const std::string directory = start_step(root, step);
  const auto values = values_of(step);
  std::vector<ShardInfo> shards;
  for (int r = 0; r < kRanks; ++r) {
    std::vector<CheckpointPiece> pieces;
    for (const auto& t : kTensors) {
      const int64_t begin = kElements * r / kRanks, end = kElements * (r + 1) / kRanks;
      pieces.push_back({t.section, t.name, begin, end, values.data() + begin});
    }
    shards.push_back(write_shard(directory, r, kRanks, kTensors, pieces));
  }
  write_manifest(directory, shards, {{"step", step}});
  commit_step(root, step);
  remove_old(root, 2);
}

// Saves step after step from `first` on, writing each finished step to `report`. Never returns.
[[noreturn]] void save_until_killed(const std::string& root, int64_t first, int report) {
  try {
    for (int64_t step = first;; ++step) {
      save(root, step);
      if (::write(report, &step, sizeof(step)) != sizeof(step)) ::_exit(3);
    }
  } catch (...) {
    ::_exit(4);
  }
}

int64_t last_reported(int fd) {
  int64_t step = 0, last = 0;
  while (::read(fd, &step, sizeof(step)) == ssize_t(sizeof(step))) last = step;
  return last;
}

int64_t check_newest(const std::string& root) {
  const std::string found = find_latest(root);
  if (found.empty()) return 0;
  const Checkpoint checkpoint = Checkpoint::open(found);
  checkpoint.verify_hashes();
  const int64_t step = checkpoint.state()["step"];
  EXPECT_TRUE(found == step_directory(root, step) || found == step_directory(root, step) + ".new");
  std::vector<int32_t> values(kElements);
  for (const auto& t : kTensors) {
    checkpoint.read(t.section, t.name, 0, kElements, values.data());
    EXPECT_EQ(values, values_of(step));
  }
  return step;
}

TEST(CheckpointCrash, KilledAtRandomMoments) {
  // Prefer memory, for many saves a second; a test of SIGKILL does not need a disk.
  const bool in_memory = ::access("/dev/shm", W_OK) == 0;
  const TempDir dir(in_memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  const auto start = std::chrono::steady_clock::now();
  save(dir.path(), 1);
  const auto save_us = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - start);
  const uint64_t seed = 20240607;
  PhiloxStream random(seed, 0);
  const int rounds =
      std::getenv("SLX_CRASH_ROUNDS") ? std::atoi(std::getenv("SLX_CRASH_ROUNDS")) : 100;
  int64_t newest = 1;
  int interrupted = 0;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    int fds[2];
    ASSERT_EQ(::pipe(fds), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(dir.path(), newest + 1, fds[1]);
    ::close(fds[1]);
    ::usleep(useconds_t(random.next_below(uint64_t(save_us.count()) * 4 + 1000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
    const int64_t reported = last_reported(fds[0]);
    ::close(fds[0]);
    const int64_t found = check_newest(dir.path());
    ASSERT_GE(found, std::max(reported, newest)) << "seed " << seed;
    ASSERT_LE(found, std::max(reported, newest) + 1) << "seed " << seed;
    interrupted += path_exists(step_directory(dir.path(), found + 1) + ".new");
    newest = found;
    if (round % 2 == 0) continue;  // half of the rounds start without tidy_root
    tidy_root(dir.path(), 2, find_latest(dir.path()));
    ASSERT_EQ(find_latest(dir.path()), step_directory(dir.path(), newest)) << "seed " << seed;
  }
  EXPECT_GT(newest, rounds / 4);
  EXPECT_GT(interrupted, rounds / 10);  // enough kills must hit a save in progress
  RecordProperty("steps", int(newest));
  RecordProperty("interrupted", interrupted);
}

}  // namespace
}  // namespace slimexx::io

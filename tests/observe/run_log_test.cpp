#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "observe/event_file.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/metrics.h"

namespace slimexx::observe {
namespace {

std::string to_hex(std::string_view bytes) {
  static const char* digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out += digits[static_cast<unsigned char>(c) >> 4];
    out += digits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

// Values of RFC 3720, B.4.
TEST(Crc32c, gives_the_published_values) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
  EXPECT_EQ(crc32c(""), 0u);
}

// Expected bytes are from protobuf and TensorBoard's own record writer.
TEST(EventFile, encodes_known_events) {
  EXPECT_EQ(to_hex(encode_version_event(1.5)), "09000000000000f83f1a0d627261696e2e4576656e743a32");
  EXPECT_EQ(to_hex(encode_scalars_event(1.5, 300, {{"a/b", 0.5}, {"c", -2.0}})),
            "09000000000000f83f10ac022a160a0a0a03612f62150000003f0a080a016315000000c0");
  EXPECT_EQ(to_hex(encode_restart_event(1.5, 7)), "09000000000000f83f10073a020801");
  EXPECT_EQ(to_hex(encode_text_event(1.5, 300, "a/b", "# hi\n|a|")),
            "09000000000000f83f10ac022a270a250a03612f62421208071204120208014208232068690a7c617c4a0a"
            "0a060a04746578742002");
  EXPECT_EQ(to_hex(frame_record(encode_version_event(1.5))),
            "1800000000000000a37f4b22"
            "09000000000000f83f1a0d627261696e2e4576656e743a32"
            "2a28646c");
}

class RunFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "slx_observe_" +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
  }
  std::vector<Json> rows() const {
    std::vector<Json> out;
    std::ifstream file(dir_ + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) out.push_back(parse_json(line, "row"));
    return out;
  }
  RunLog::Options options(int64_t resume_step = 0) const {
    RunLog::Options given;
    given.run_dir = dir_;
    given.resume_step = resume_step;
    given.total_steps = 10;
    return given;
  }
  std::string dir_;
};

TEST_F(RunFolder, appends_flat_rows) {
  {
    RunLog log(options());
    for (int step = 0; step < 3; ++step) {
      MetricRow row;
      row.set("train/loss", 0.1 * step);
      row.set("train/lr", step == 1 ? std::nan("") : 1e-6);
      row.set("train/grad_norm", std::numeric_limits<double>::infinity());
      log.write_row(step, row);
    }
    log.write_status("running", 2);
  }
  const auto got = rows();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[2]["step"], 2);
  EXPECT_EQ(got[2]["train/loss"].get<double>(), 0.2);
  EXPECT_TRUE(got[1]["train/lr"].is_null());
  EXPECT_TRUE(got[1]["train/grad_norm"].is_null());
  EXPECT_GT(got[0]["wall_time"].get<double>(), 1e9);
  const Json status = parse_json_file(dir_ + "/status.json");
  EXPECT_EQ(status["state"], "running");
  EXPECT_EQ(status["step"], 2);
  EXPECT_EQ(status["total_steps"], 10);
  EXPECT_TRUE(status["error"].is_null());
}

TEST_F(RunFolder, resumes_after_a_torn_line) {
  make_directories(dir_);
  write_file_atomic(dir_ + "/metrics.jsonl",
                    "{\"step\": 0, \"train/loss\": 1}\n{\"step\": 1, \"train/loss\": 2}\n"
                    "garbage\n{\"step\": 2, \"train/loss\": 3}\n{\"step\": 3, \"trai");
  MetricRow row;
  row.set("train/loss", 9);
  {
    RunLog log(options(2));
    log.write_row(2, row);
  }
  const auto got = rows();
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0]["step"], 0);
  EXPECT_EQ(got[1]["step"], 1);
  EXPECT_EQ(got[2]["train/loss"], 9);
}

TEST_F(RunFolder, temporaries_of_a_killed_run_go) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  std::filesystem::create_directories(dir_);
  const std::string stale = dir_ + "/status.json.tmp." + std::to_string(child);
  std::ofstream(stale) << "{";
  const RunLog log(options());
  EXPECT_FALSE(std::filesystem::exists(stale));
}

TEST_F(RunFolder, new_event_file_for_every_start) {
  for (int start = 0; start < 3; ++start) {
    RunLog log(options(start));
    MetricRow row;
    row.set("train/loss", start);
    log.write_row(start, row);
  }
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ + "/tb")) {
    if (entry.is_directory()) continue;
    ++files;
    const std::string bytes = read_text_file(entry.path().string());
    EXPECT_EQ(bytes.substr(12 + 11, 13), "brain.Event:2");
    // Both checksums of every frame are correct, and the frames fill the file.
    size_t at = 0;
    while (at < bytes.size()) {
      uint64_t length;
      uint32_t crc;
      std::memcpy(&length, bytes.data() + at, 8);
      std::memcpy(&crc, bytes.data() + at + 8, 4);
      ASSERT_EQ(crc, masked_crc32c(std::string_view(bytes).substr(at, 8)));
      std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
      ASSERT_EQ(crc, masked_crc32c(std::string_view(bytes).substr(at + 12, length)));
      at += 16 + length;
    }
    EXPECT_EQ(at, bytes.size());
  }
  EXPECT_EQ(files, 6) << "rollouts and optimizer steps have one each";
}

TEST_F(RunFolder, keeps_every_optimizer_step) {
  const auto train_steps = [&] {
    std::vector<Json> out;
    std::ifstream file(dir_ + "/train_steps.jsonl");
    for (std::string line; std::getline(file, line);) out.push_back(parse_json(line, "row"));
    return out;
  };
  const auto write = [&](RunLog& log, int64_t rollout) {
    for (int64_t k = 1; k <= 2; ++k) {
      MetricRow row;
      row.set("train_step/pg_clipfrac", 0.1 * static_cast<double>(k));
      log.write_train_step(rollout, 2 * rollout + k, row);
    }
  };
  {
    RunLog log(options());
    for (int64_t rollout = 0; rollout < 3; ++rollout) write(log, rollout);
  }
  ASSERT_EQ(train_steps().size(), 6u);
  {
    RunLog::Options resumed = options(2);
    resumed.resume_train_step = 4;
    RunLog log(resumed);
    write(log, 2);
  }
  const auto got = train_steps();
  ASSERT_EQ(got.size(), 6u) << "the rows of rollout 2 are there once";
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i]["step"], i + 1);
    EXPECT_EQ(got[i]["rollout"], i / 2);
    EXPECT_EQ(got[i]["train_step/pg_clipfrac"].get<double>(), i % 2 == 0 ? 0.1 : 0.2);
  }
}

TEST(Markdown, shows_text_as_it_stands) {
  EXPECT_EQ(markdown_code("a\n  b: |x|"), "\n\n    a\n      b: |x|\n\n");
}

TEST_F(RunFolder, other_ranks_leave_nothing) {
  RunLog::Options given = options();
  given.enabled = false;
  RunLog log(given);
  log.write_row(0, {});
  log.print_step(0, {});
  log.write_status("running", 0);
  EXPECT_FALSE(path_exists(dir_));
}

// The failing rank itself writes the status, because rank 0 may be killed before it can.
TEST_F(RunFolder, any_rank_reports_its_failure) {
  RunLog root(options());
  root.write_status("running", 3, "", "slow");
  EXPECT_EQ(parse_json_file(dir_ + "/status.json")["warning"], "slow");
  RunLog::Options given = options();
  given.enabled = false;
  RunLog(given).write_failure(3, "out of luck");
  const Json status = parse_json_file(dir_ + "/status.json");
  EXPECT_EQ(status["state"], "failed");
  EXPECT_EQ(status["step"], 3);
  EXPECT_EQ(status["error"], "out of luck");
  EXPECT_TRUE(status["warning"].is_null());
  EXPECT_TRUE(status["failure"].is_null());
}

// Later failures are consequences of the first.
TEST_F(RunFolder, first_failure_stands) {
  RunLog root(options());
  root.write_status("running", 3);
  EXPECT_TRUE(write_first_failure(dir_, -1, "rank 2 died", {2, "node7", "generate", "barrier"}));
  EXPECT_FALSE(write_first_failure(dir_, 9, "connection lost", {1, "node6", "generate", ""}));
  root.write_failure(9, "connection lost");
  root.write_status("running", 4);
  const Json status = parse_json_file(dir_ + "/status.json");
  EXPECT_EQ(status["state"], "failed");
  EXPECT_EQ(status["step"], 3);
  EXPECT_EQ(status["error"], "rank 2 died");
  EXPECT_EQ(status["failure"], Json::parse(R"({"rank": 2, "host": "node7", "phase": "generate",
                                               "call": "barrier"})"));
  for (const auto& entry : std::filesystem::directory_iterator(dir_))
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
  forget_failure(dir_);
  root.write_status("running", 4);
  EXPECT_EQ(parse_json_file(dir_ + "/status.json")["state"], "running");
}

// If no new file can be made, the status is overwritten in place, but never an earlier failure. A
// folder with the new file's name simulates the full disk.
TEST_F(RunFolder, first_failure_stands_without_new_files) {
  RunLog root(options());
  root.write_status("running", 3);
  std::filesystem::create_directories(
      fmt::format("{}/status.json.{}.{}.tmp.{}/x", dir_, host_name(), ::gettid(), ::getpid()));
  EXPECT_TRUE(write_first_failure(dir_, 4, "disk full", {0, "node7", "train", ""}));
  EXPECT_FALSE(write_first_failure(dir_, 5, "connection lost", {1, "node6", "train", ""}));
  EXPECT_EQ(parse_json_file(dir_ + "/status.json")["error"], "disk full");
}

// A failure is recorded even if the run has no status yet.
TEST_F(RunFolder, failure_of_the_start_is_told) {
  std::filesystem::create_directories(dir_);
  EXPECT_TRUE(write_first_failure(dir_, -1, "rank 0 died", {0, "node7", "load_model", ""}));
  const Json status = parse_json_file(dir_ + "/status.json");
  EXPECT_EQ(status["state"], "failed");
  EXPECT_TRUE(status["step"].is_null());
  EXPECT_TRUE(status["failure"]["call"].is_null());
}

// If no new file can be created, the old one is overwritten; here a folder blocks the temporary
// name.
TEST_F(RunFolder, failure_is_told_without_a_new_file) {
  RunLog log(options());
  log.write_status("running", 3, "", std::string(300, 'w'));
  std::filesystem::create_directories(dir_ + "/status.json." + host_name() + "." +
                                      std::to_string(gettid()) + ".tmp." +
                                      std::to_string(getpid()));
  log.write_failure(3, "disk full");
  const Json status = parse_json_file(dir_ + "/status.json");
  EXPECT_EQ(status["state"], "failed");
  EXPECT_EQ(status["error"], "disk full");
}

TEST_F(RunFolder, removed_or_replaced_is_an_error) {
  RunLog log(options());
  log.write_row(0, {});
  std::filesystem::remove_all(dir_);
  EXPECT_THROW(log.write_row(1, {}), Error);
  std::filesystem::create_directories(dir_);
  std::ofstream(dir_ + "/metrics.jsonl") << "{\"step\": 0}\n";
  EXPECT_THROW(log.write_row(1, {}), Error);
  EXPECT_THROW(log.write_status("done", 1), Error);
  EXPECT_NO_THROW(log.write_failure(1, "removed"));
  EXPECT_EQ(parse_json_file(dir_ + "/status.json")["state"], "failed");
}

// Simulates a full disk by a file size limit that the events of the second row exceed.
TEST_F(RunFolder, full_disk_under_tensorboard_ends_no_run) {
  MetricRow row;
  for (const MetricInfo& info : metric_catalogue()) {
    if (info.name.find('*') == std::string_view::npos) row.set(info.name, 0);
  }
  RunLog log(options());
  log.write_row(0, row);
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/tb"))
    if (entry.is_regular_file()) events = entry.path();
  const auto event_bytes = std::filesystem::file_size(events);
  const auto row_bytes = std::filesystem::file_size(dir_ + "/metrics.jsonl");
  ASSERT_GT(event_bytes, row_bytes + 200) << "the limit must fall between the two";
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{2 * row_bytes + 200, unlimited.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(log.write_row(1, row));
  setrlimit(RLIMIT_FSIZE, &unlimited);
  EXPECT_NO_THROW(log.write_row(2, row));
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no further TensorBoard events"),
            std::string::npos);
  EXPECT_EQ(rows().size(), 3u);
}

TEST_F(RunFolder, prints_a_header_every_twenty_lines) {
  RunLog log(options());
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < 41; ++step) log.print_step(step, {});
  const std::string text = ::testing::internal::GetCapturedStderr();
  int headers = 0;
  for (size_t at = text.find("reward"); at != std::string::npos; at = text.find("reward", at + 1))
    ++headers;
  EXPECT_EQ(headers, 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 44);
}

}  // namespace
}  // namespace slimexx::observe

// Tests hangs: a rank that is alive but makes no progress ends the whole run soon, and the error
// names it.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "e2e/small_run.h"
#include "sanitized.h"

namespace slimexx::e2e {
namespace {

class HangOfRanks : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_ranks(); !reason.empty()) GTEST_SKIP() << reason;
    if (SLX_SANITIZED) GTEST_SKIP() << "a sanitizer wants to be the first to be loaded";
    make_checkpoint(folder_, "models/glm4_no_bias");
    make_prompts(folder_);
  }
  const Folder folder_;
};

// The rank is in no collective call while the others wait for it, as if it waited for a lock that
// is never released.
TEST_P(HangOfRanks, OneIsNamed) {
  const std::string hung = std::to_string(GetParam()), other = GetParam() == 0 ? "1" : "0";
  const std::string run_dir = folder_ / "run", hang = folder_ / "hang";
  const std::string script = "[ \"$OMPI_COMM_WORLD_RANK\" = " + hung +
                             " ] && export LD_PRELOAD=\"" SLX_HANG_AT_CLOCK "\" SLX_HANG_AT=\"" +
                             hang + "\"; exec \"$@\"";
  Program program(
      3,
      train_arguments(folder_, run_dir, {"rollout.num_rollout=100000", "parallel.hang_limit_s=3"}),
      {"sh", "-c", script, "sh"});
  ASSERT_TRUE(
      program.wait_until([&] { return read_bytes(run_dir + "/metrics.jsonl").size() > 2000; }));
  const auto start = std::chrono::steady_clock::now();
  folder_.put("hang", "");
  const Finished f = program.wait();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", std::to_string(took.count()));
  EXPECT_GT(f.status, 0) << f.text();
  EXPECT_GT(took.count(), 2.5);
  EXPECT_LT(took.count(), 30) << "it takes five, and the machine may be busy";
  const std::string name = "rank " + hung + " has done nothing for ";
  for (const std::string& text :
       {name,
        "all ranks wait for each other or make no progress:" + std::string("\n  rank 0 (host "),
        "; rank " + other + " waits for it, in phase "})
    EXPECT_NE(f.err.find(text), std::string::npos) << "no \"" << text << "\" in:\n" << f.text();
  const Json status = parse_json(read_bytes(run_dir + "/status.json"), "status.json");
  EXPECT_EQ(status.at("state"), "failed");
  EXPECT_EQ(status.at("error").get<std::string>().find(name), 0u) << f.text();
  EXPECT_EQ(status.at("failure").at("rank"), GetParam());
  EXPECT_FALSE(status.at("failure").at("phase").get<std::string>().empty());
  EXPECT_TRUE(status.at("failure").at("call").is_null());
}

INSTANTIATE_TEST_SUITE_P(Ranks, HangOfRanks, testing::Values(0, 1));

}  // namespace
}  // namespace slimexx::e2e

// doctor: findings about launches.
#include <gtest/gtest.h>

#include <algorithm>

#include "run_binary.h"
#include "slimexx/base/file.h"

namespace slimexx::cli {
namespace {

const std::string kModel = "model.hf_checkpoint=";

TEST(Doctor, PrintsOneScreenOfThisMachine) {
  const Finished f = run_slimexx({"doctor"});
  EXPECT_EQ(f.status, 0) << f.text();
  EXPECT_LE(std::ranges::count(f.out, '\n'), 24) << f.out;
  EXPECT_NE(f.out.find("1 rank;"), std::string::npos) << f.out;
}

TEST(Doctor, SaysThatCheckpointsDoNotFit) {
  const Folder folder;
  const Finished f =
      run_slimexx({"doctor", "--set", kModel + golden_model("qwen3_tied_mqa"), "data.prompt_data=x",
                   "reward.rm_type=math", "rollout.num_rollout=1", "rollout.n_samples_per_prompt=2",
                   "checkpoint.keep_last=9000000000", "checkpoint.save=" + folder / "new/folder"});
  EXPECT_EQ(f.status, 5) << f.text();
  EXPECT_NE(f.out.find("checkpoints take about"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find(folder.path() + ","), std::string::npos) << f.out;
}

// Faults that would stop a run before its first step.
TEST(Doctor, TriesEveryFolderAndLooksForTheModel) {
  const Folder folder;
  write_file_atomic(folder / "file", "x");
  const auto doctor = [&](const std::string& model, const std::string& run_dir,
                          const std::string& save) {
    return run_slimexx({"doctor", "--set", kModel + model, "data.prompt_data=x",
                        "reward.rm_type=math", "rollout.num_rollout=1",
                        "rollout.n_samples_per_prompt=2", "observe.run_dir=" + run_dir,
                        "checkpoint.save=" + save});
  };
  const std::string model = golden_model("qwen3_tied_mqa"), good = folder / "good";
  EXPECT_EQ(doctor(model, good, good).status, 0);
  struct Case {
    Finished finished;
    std::string words;
  };
  for (const Case& c : {Case{doctor(model, "/proc/x", good), "/proc"},
                        Case{doctor(model, good, folder / "file"), "checkpoint.save: "},
                        Case{doctor(folder / "none", good, good), "model.hf_checkpoint: "}}) {
    EXPECT_EQ(c.finished.status, 5) << c.words << c.finished.text();
    EXPECT_NE(c.finished.out.find(c.words), std::string::npos) << c.words << c.finished.out;
  }
}

TEST(Doctor, RefusesAConfigurationThatTrainRefuses) {
  const Finished f = run_slimexx({"doctor", "--set", "train.typo=1"});
  EXPECT_EQ(f.status, 2) << f.text();
  EXPECT_NE(f.err.find("train.typo"), std::string::npos) << f.err;
}

TEST(Doctor, LooksAtAllRanksAndAnswersOnce) {
  if (!e2e::why_no_ranks().empty()) GTEST_SKIP() << e2e::why_no_ranks();
  const Finished f = run_slimexx_ranks(2, {"doctor"});
  EXPECT_EQ(f.status, 0) << f.text();
  EXPECT_NE(f.out.find("2 ranks;"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("barrier"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find("folder "), f.out.rfind("folder ")) << f.out;
}

}  // namespace
}  // namespace slimexx::cli

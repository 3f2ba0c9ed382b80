#include "rl/checkpoint/resume_check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"

namespace slimexx::rl {
namespace {

namespace fs = std::filesystem;

class ResumeCheck : public testing::Test {
 protected:
  ResumeCheck()
      : root_(fs::temp_directory_path() / ("slimexx_resume_check_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "saved");
    fs::create_directories(root_ / "now");
  }
  ~ResumeCheck() override { fs::remove_all(root_); }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream(root_ / name) << text;
  }
  // Returns the reason for a refusal; empty if the run may continue.
  std::string fault() const {
    try {
      check_same_model((root_ / "saved").string(), (root_ / "now").string());
      return "";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      return e.what();
    }
  }
  fs::path root_;
};

TEST_F(ResumeCheck, SpellingAndIdleKeysDoNotCount) {
  EXPECT_EQ(fault(), "") << "neither has any file";
  put("saved/config.json", R"({"hidden_size": 8, "rope": {"theta": 1e4}, "dtype": "float32"})");
  put("now/config.json",
      R"({"rope":{"theta":10000.0},"transformers_version":"5","hidden_size":8})");
  EXPECT_EQ(fault(), "");
}

TEST_F(ResumeCheck, AnotherModelIsNamed) {
  put("saved/config.json", R"({"rope": {"theta": 10000}, "layers": [1, 2]})");
  put("now/config.json", R"({"rope": {"theta": 500}, "layers": [1, 2]})");
  EXPECT_NE(fault().find("rope.theta was 10000 and is now 500"), std::string::npos) << fault();
  put("now/config.json", R"({"rope": {"theta": 10000}, "layers": [1, 3]})");
  EXPECT_NE(fault().find("layers[1] was 2 and is now 3"), std::string::npos) << fault();
  put("now/config.json", R"({"rope": {"theta": 10000}, "layers": [1, 2], "bias": true})");
  EXPECT_NE(fault().find("bias was absent and is now true"), std::string::npos) << fault();
}

TEST_F(ResumeCheck, SwappedTokensAreNamed) {
  put("saved/tokenizer.json", R"({"model": {"vocab": {"0": 15, "1": 16}}})");
  put("now/tokenizer.json", R"({"model": {"vocab": {"1": 15, "0": 16}}})");
  EXPECT_NE(fault().find("tokenizer.json"), std::string::npos) << fault();
  EXPECT_NE(fault().find("model.vocab.0 was 15 and is now 16"), std::string::npos) << fault();
}

TEST(CompareSettings, RefusesWhatTheStateCannotGoOnWith) {
  EXPECT_NO_THROW(compare_settings("", "train: {loss_type: sft}\n"));
  EXPECT_NO_THROW(compare_settings("optimizer: {lr: 1e-4}\n", "optimizer: {lr: 1e-5}\n"));
  EXPECT_THROW(compare_settings("train: {loss_type: sft}\n", "train: {loss_type: policy_loss}\n"),
               Error);
  EXPECT_THROW(compare_settings("debug: {load_rollout: \"\"}\n", "debug: {load_rollout: d}\n"),
               Error);
  EXPECT_NO_THROW(compare_settings("debug: {load_rollout: c}\n", "debug: {load_rollout: d}\n"));
}

// The checkpoint has master weights and moments only for trained layers.
TEST(CompareSettings, RefusesToTrainOtherMtpLayers) {
  const std::string off = "train: {enable_mtp_training: false, mtp_num_layers: 1}\n";
  const std::string on = "train: {enable_mtp_training: true, mtp_num_layers: 1}\n";
  EXPECT_THROW(compare_settings(off, on), Error);
  EXPECT_THROW(compare_settings(on, off), Error);
  EXPECT_THROW(compare_settings("seed: 1\n", "seed: 1\n" + on), Error) << "of an older version";
  EXPECT_THROW(compare_settings(on, "train: {enable_mtp_training: true, mtp_num_layers: 2}\n"),
               Error);
  EXPECT_NO_THROW(
      compare_settings(off, "train: {enable_mtp_training: false, mtp_num_layers: 2}\n"));
  EXPECT_NO_THROW(compare_settings("seed: 1\n", "seed: 1\n" + off));
  EXPECT_NO_THROW(compare_settings(on + "x: 1\n", on + "x: 2\n"));
}

// Master weights and moments exist only for parameters that are not frozen.
TEST(CompareSettings, RefusesToFreezeOtherParameters) {
  for (const std::string key : {"freeze_params_name_list", "only_train_params_name_list"}) {
    const std::string none = "train: {" + key + ": []}\n", some = "train: {" + key + ": [norm]}\n";
    EXPECT_NO_THROW(compare_settings("seed: 1\n", "seed: 1\n" + none)) << "of an older version";
    EXPECT_NO_THROW(compare_settings("seed: 1\n" + some, "seed: 2\n" + some));
    EXPECT_THROW(compare_settings("seed: 1\n", "seed: 1\n" + some), Error);
    EXPECT_THROW(compare_settings(some, none), Error);
    EXPECT_THROW(compare_settings(some, "train: {" + key + ": [norm, mlp]}\n"), Error);
  }
}

// If the checkpoint holds a reference, the run uses it.
TEST_F(ResumeCheck, AnotherReferenceIsRefusedWhereTheCheckpointHasOne) {
  const auto settings = [&](const std::string& folder) {
    return "model: {ref_load: " + (root_ / folder).string() + "}\n";
  };
  for (const char* folder : {"r1", "r2"}) std::filesystem::create_directories(root_ / folder);
  std::filesystem::create_symlink(root_ / "r1", root_ / "link");
  try {
    compare_settings(settings("r1"), settings("r2"), true);
    FAIL() << "it is taken and not used";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_EQ(error.where(), "model.ref_load");
    for (const char* folder : {"r1", "r2"})
      EXPECT_NE(error.message().find((root_ / folder).string()), std::string::npos)
          << error.message();
    EXPECT_NE(error.hint().find((root_ / "r1").string()), std::string::npos) << error.hint();
  }
  EXPECT_THROW(compare_settings(settings("gone"), settings("r2"), true), Error);
  EXPECT_NO_THROW(compare_settings(settings("r1"), settings("r1/"), true));
  EXPECT_NO_THROW(compare_settings(settings("r1"), settings("link"), true));
  EXPECT_NO_THROW(compare_settings(settings("r1"), settings("r2"), false));
  EXPECT_NO_THROW(compare_settings("", settings("r2"), true)) << "not known";
}

TEST_F(ResumeCheck, EarlierSettingsAndRowsAreKept) {
  const std::string dir = (root_ / "now").string();
  write_settings(dir, "a: 1\n");
  write_settings(dir, "a: 1\n");
  write_settings(dir, "a: 2\n");
  write_settings(dir, "a: 3\n");
  EXPECT_EQ(read_text_file(dir + "/config.resolved.yaml"), "a: 3\n");
  EXPECT_EQ(read_text_file(dir + "/config.resolved.1.yaml"), "a: 1\n");
  EXPECT_EQ(read_text_file(dir + "/config.resolved.2.yaml"), "a: 2\n");
  EXPECT_FALSE(path_exists(dir + "/config.resolved.3.yaml"));
  put("now/metrics.jsonl", "{}\n");
  set_rows_aside(dir);
  EXPECT_FALSE(path_exists(dir + "/metrics.jsonl"));
  EXPECT_EQ(read_text_file(dir + "/metrics.1.jsonl"), "{}\n");
}

}  // namespace
}  // namespace slimexx::rl

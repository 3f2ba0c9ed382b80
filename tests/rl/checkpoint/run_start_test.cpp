#include "slimexx/rl/run_start.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::rl {
namespace {

namespace fs = std::filesystem;

class RunStartTest : public testing::Test {
 protected:
  RunStartTest()
      : root_(fs::temp_directory_path() / ("slimexx_run_start_" + std::to_string(getpid()))) {
    fs::remove_all(root_);
    fs::create_directories(root_);
    config_.observe.run_dir = path("runs/x");
  }
  ~RunStartTest() override { fs::remove_all(root_); }

  std::string path(const std::string& name) const { return (root_ / name).string(); }
  void put_rows(const std::string& run_dir) const {
    fs::create_directories(root_ / run_dir);
    std::ofstream(root_ / run_dir / "metrics.jsonl") << "{\"step\": 0}\n";
  }
  std::string put_checkpoint(const std::string& root, int64_t step) const {
    const std::string directory = io::step_directory(path(root), step);
    const std::vector<io::CheckpointTensor> tensors = {{"master", "w", tensor::DType::kF32, {1}}};
    const float value = 1;
    const std::vector<io::CheckpointPiece> pieces = {{"master", "w", 0, 1, &value}};
    const auto shard = io::write_shard(directory, 0, 1, tensors, pieces);
    io::write_manifest(directory, {shard}, Json::object());
    io::set_latest(path(root), fs::path(directory).filename().string());
    return directory;
  }
  // Holds the locks of all starts of a test, like runs that are still active.
  RunStart decide(StartWish wish) { return decide_start(config_, wish, locks_.emplace_back()); }
  // Decides as if the other programs had ended: no locks are held.
  RunStart decide_alone(StartWish wish) {
    RunLocks locks;
    return decide_start(config_, wish, locks);
  }
  void expect_refused(StartWish wish, const std::string& words, const std::string& where) {
    try {
      const RunStart start = decide_alone(wish);
      ADD_FAILURE() << "accepted: " << start_to_json(start);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
      EXPECT_EQ(e.where(), where);
      EXPECT_NE(e.hint(), "");
    }
  }

  fs::path root_;
  RunConfig config_;
  std::deque<RunLocks> locks_;
};

const StartWish kAnew{};
const StartWish kAnewUnnamed{.names_run_dir = false};

TEST_F(RunStartTest, NewFolderIsTaken) {
  const RunStart start = decide_alone(kAnew);
  EXPECT_EQ(start.run_dir, path("runs/x"));
  EXPECT_EQ(start.checkpoint, "");
  EXPECT_FALSE(fs::exists(path("runs"))) << "a start that came to nothing leaves nothing";
}

TEST_F(RunStartTest, AnotherRunIsNeverWrittenOver) {
  put_rows("runs/x");
  expect_refused(kAnew, "holds another run", path("runs/x"));
  put_checkpoint("runs/x/checkpoints", 2);
  expect_refused(kAnew, "--resume", path("runs/x"));
  fs::remove(path("runs/x/metrics.jsonl"));
  expect_refused(kAnew, "checkpoints of another run", path("runs/x/checkpoints"));
  // A checkpoint from elsewhere cannot continue in this folder.
  const std::string elsewhere = put_checkpoint("y/checkpoints", 4);
  put_rows("runs/x");
  expect_refused({.resume = ResumeWish::kFolder, .folder = elsewhere}, "holds another run",
                 path("runs/x"));
  config_.checkpoint.save = path("y/checkpoints");
  expect_refused({.resume = ResumeWish::kNewest}, "holds another run", path("runs/x"));
}

TEST_F(RunStartTest, NameOfItsOwnIsAFreeOne) {
  put_rows("runs/x");
  EXPECT_EQ(decide(kAnewUnnamed).run_dir, path("runs/x-2"));
  EXPECT_EQ(decide(kAnewUnnamed).run_dir, path("runs/x-3")) << "x-2 is being written to";
  put_rows("runs/x-7");
  put_rows("runs/x-old");
  EXPECT_EQ(decide_alone(kAnewUnnamed).run_dir, path("runs/x-8"));
  EXPECT_EQ(decide_alone({.names_run_dir = false, .dry_run = true}).run_dir, path("runs/x-8"));
}

TEST_F(RunStartTest, ResumeTakesTheNewestOfItsName) {
  put_rows("runs/x");
  put_checkpoint("runs/x/checkpoints", 2);
  const StartWish newest{.resume = ResumeWish::kNewest, .names_run_dir = false};
  RunStart start = decide_alone(newest);
  EXPECT_EQ(start.run_dir, path("runs/x"));
  EXPECT_TRUE(start.is_own);
  put_rows("runs/x-2");
  expect_refused(newest, "no complete checkpoint", path("runs/x-2/checkpoints"));
  const std::string second = put_checkpoint("runs/x-2/checkpoints", 6);
  start = decide_alone(newest);
  EXPECT_EQ(start.run_dir, path("runs/x-2"));
  EXPECT_EQ(start.checkpoint, second);
  // If a checkpoint is named, its run's folder is used.
  start = decide_alone({.resume = ResumeWish::kFolder,
                        .folder = path("runs/x/checkpoints"),
                        .names_run_dir = false});
  EXPECT_EQ(start.run_dir, path("runs/x"));
}

TEST_F(RunStartTest, AutoContinuesOrStartsAnew) {
  const StartWish automatic{.resume = ResumeWish::kAuto};
  EXPECT_EQ(decide_alone(automatic).checkpoint, "");
  put_rows("runs/x");  // killed before its first checkpoint
  RunStart start = decide_alone(automatic);
  EXPECT_EQ(start.checkpoint, "");
  EXPECT_TRUE(start.sets_rows_aside);
  const std::string saved = put_checkpoint("runs/x/checkpoints", 2);
  start = decide_alone(automatic);
  EXPECT_EQ(start.checkpoint, saved);
  EXPECT_TRUE(start.is_own);
  EXPECT_EQ(start.use, CheckpointUse::kState);
  EXPECT_FALSE(start.sets_rows_aside);
}

TEST_F(RunStartTest, LoadStartsAnewWhereNothingIsThereYet) {
  config_.model.load = config_.checkpoint.save = path("ck");
  EXPECT_EQ(decide_alone(kAnew).checkpoint, "") << "absent";
  fs::create_directories(path("ck/step_000002"));  // interrupted save
  EXPECT_EQ(decide_alone(kAnew).checkpoint, "") << "no manifest";
  const std::string saved = put_checkpoint("ck", 2);
  const RunStart start = decide_alone(kAnew);
  EXPECT_EQ(start.checkpoint, saved);
  EXPECT_TRUE(start.is_own);
  EXPECT_EQ(start.use, CheckpointUse::kStateOrWeights);
  config_.model.load = path("hf");
  config_.checkpoint.save = "";
  fs::create_directories(path("hf"));
  std::ofstream(path("hf/config.json")) << "{}";
  expect_refused(kAnew, "holds no complete checkpoint", path("hf"));
}

TEST_F(RunStartTest, LoadTakesAStepByNumber) {
  config_.model.load = config_.checkpoint.save = path("ck");
  const std::string second = put_checkpoint("ck", 2), fourth = put_checkpoint("ck", 4);
  EXPECT_EQ(decide_alone(kAnew).checkpoint, fourth);
  config_.model.ckpt_step = 2;
  EXPECT_EQ(decide_alone(kAnew).checkpoint, second);
  config_.model.ckpt_step = 3;
  expect_refused(kAnew, "no complete checkpoint", io::step_directory(path("ck"), 3));
}

// A requeued job still has model.ckpt_step set, but its first start already went back to that step,
// so it must not go back again.
TEST_F(RunStartTest, GoesBackToAStepOnce) {
  config_.model.load = config_.checkpoint.save = path("ck");
  const std::string second = put_checkpoint("ck", 2), fourth = put_checkpoint("ck", 4);
  config_.model.ckpt_step = 2;
  config_.resolved_yaml = "model: {load: ck, ckpt_step: 2}\n";
  const auto put_settings = [&](const std::string& yaml) {
    fs::create_directories(root_ / "runs/x");
    std::ofstream(root_ / "runs/x/config.resolved.yaml") << yaml;
  };
  put_settings("model: {load: ck}\n");
  EXPECT_EQ(decide_alone(kAnew).checkpoint, second);
  put_settings("model: {load: ck, ckpt_step: 4}\n");
  EXPECT_EQ(decide_alone(kAnew).checkpoint, second);
  put_settings("model: {load: ck, ckpt_step: 2}\noptimizer: {lr: 1}\n");
  EXPECT_EQ(decide_alone(kAnew).checkpoint, fourth);
  // If the checkpoint is from another run's folder, the run goes back to it at every start.
  config_.checkpoint.save = path("own");
  EXPECT_EQ(decide_alone(kAnew).checkpoint, second);
}

// Loading only the weights starts a new run, which must not write among the other run's
// checkpoints.
TEST_F(RunStartTest, FinetuneBeginsAnew) {
  config_.model.load = path("ck");
  config_.model.finetune = true;
  const std::string saved = put_checkpoint("ck", 2);
  const RunStart start = decide_alone(kAnew);
  EXPECT_EQ(start.checkpoint, saved);
  EXPECT_EQ(start.use, CheckpointUse::kWeights);
  EXPECT_FALSE(start.is_own);
  config_.checkpoint.save = path("ck");
  expect_refused(kAnew, "checkpoints of another run", path("ck"));
  // Once the new run has its own checkpoint, it continues from that.
  config_.checkpoint.save = path("own");
  const std::string own = put_checkpoint("own", 1);
  const RunStart again = decide_alone({.resume = ResumeWish::kAuto});
  EXPECT_EQ(again.checkpoint, own);
  EXPECT_EQ(again.use, CheckpointUse::kState);
}

TEST_F(RunStartTest, TwoRunsDoNotShareAFolderOfCheckpoints) {
  config_.checkpoint.save = path("ck");
  decide(kAnew);
  config_.observe.run_dir = path("runs/y");
  expect_refused(kAnew, "another run is writing", path("ck"));
  EXPECT_FALSE(fs::exists(path("runs/y")));
  config_.observe.run_dir = path("runs/x");
  config_.checkpoint.save = path("other");
  expect_refused(kAnew, "another run is writing", path("runs/x"));
  locks_.clear();
  EXPECT_NO_THROW(decide_alone(kAnew));
}

TEST_F(RunStartTest, DryRunMakesNothing) {
  decide_alone({.dry_run = true});
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(RunStartTest, TheFolderOfARunServes) {
  const std::string saved = put_checkpoint("runs/x/checkpoints", 2);
  RunStart start = decide_alone({.resume = ResumeWish::kFolder, .folder = path("runs/x")});
  EXPECT_EQ(start.checkpoint, saved);
  EXPECT_TRUE(start.is_own);
  config_.observe.run_dir = path("runs/y");
  config_.model.load = path("runs/x");
  start = decide_alone(kAnew);
  EXPECT_EQ(start.checkpoint, saved);
  EXPECT_FALSE(start.is_own);
  config_.model.ckpt_step = 2;
  EXPECT_EQ(decide_alone(kAnew).checkpoint, saved);
}

TEST_F(RunStartTest, StepsThatNoRunWroteAreNotJoined) {
  fs::create_directories(path("runs/x/checkpoints/step_000004/sub"));
  expect_refused(kAnew, "holds a step folder that no run wrote",
                 path("runs/x/checkpoints/step_000004"));
  put_checkpoint("runs/x/checkpoints", 2);
  expect_refused({.resume = ResumeWish::kNewest}, "holds a step folder that no run wrote",
                 path("runs/x/checkpoints/step_000004"));
  put_checkpoint("runs/x/checkpoints", 6);
  EXPECT_TRUE(decide_alone({.resume = ResumeWish::kNewest}).is_own) << "it is not in the way";
}

TEST_F(RunStartTest, DumpsOfAnotherRunStay) {
  config_.debug.save_rollout = path("dumps");
  config_.resolved_yaml = "debug: {save_rollout: " + path("dumps") + "}\n";
  EXPECT_NO_THROW(decide_alone(kAnew));
  fs::create_directories(path("dumps"));
  std::ofstream(path("dumps/notes.txt")) << "no dump";
  EXPECT_NO_THROW(decide_alone(kAnew));
  std::ofstream(path("dumps/rollout_000000.jsonl")) << "{}\n";
  expect_refused(kAnew, "holds the dumps of another run", path("dumps"));
  // A resumed run may write to this folder if its saved settings name the folder: the dumps are its
  // own.
  put_checkpoint("runs/x/checkpoints", 2);
  const StartWish newest{.resume = ResumeWish::kNewest};
  expect_refused(newest, "holds the dumps of another run", path("dumps"));
  std::ofstream(path("runs/x/config.resolved.yaml")) << "debug: {save_rollout: elsewhere}\n";
  expect_refused(newest, "holds the dumps of another run", path("dumps"));
  std::ofstream(path("runs/x/config.resolved.yaml")) << config_.resolved_yaml;
  EXPECT_TRUE(decide_alone(newest).is_own);
}

TEST_F(RunStartTest, DumpsReplaceNothing) {
  config_.debug.dump_weights = config_.debug.dump_gradients = path("w");
  EXPECT_NO_THROW(decide_alone(kAnew));
  fs::create_directories(path("w"));
  std::ofstream(path("w/gradients.safetensors")) << "precious";
  expect_refused(kAnew, "the file exists", path("w/gradients.safetensors"));
  put_checkpoint("runs/x/checkpoints", 2);  // a resumed run makes no more of these dumps
  EXPECT_TRUE(decide_alone({.resume = ResumeWish::kNewest}).is_own);
}

TEST_F(RunStartTest, StepsOfTheOptimizerAreRowsToo) {
  fs::create_directories(path("runs/x"));
  std::ofstream(path("runs/x/train_steps.jsonl")) << "{\"step\": 1, \"rollout\": 0}\n";
  expect_refused(kAnew, "holds another run", path("runs/x"));
  EXPECT_TRUE(decide_alone({.resume = ResumeWish::kAuto}).sets_rows_aside);
}

TEST_F(RunStartTest, TravelsAsText) {
  const RunStart start{.run_dir = "a \"b\"",
                       .checkpoint = "c",
                       .use = CheckpointUse::kWeights,
                       .is_own = true,
                       .sets_rows_aside = true};
  EXPECT_EQ(start_to_json(start_from_json(start_to_json(start))), start_to_json(start));
  EXPECT_EQ(start_from_json(start_to_json(start)).run_dir, start.run_dir);
}

}  // namespace
}  // namespace slimexx::rl

// Checkpoints that cannot be started.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/temp_dir.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/thread_ranks.h"
#include "train/tiny_policy.h"

namespace slimexx::rl {
namespace {

using train::TinyPolicy;
using train::Trainer;

constexpr const char* kModel = "llama3_scaled_tied_biased";

class CheckpointFaults : public testing::Test {
 protected:
  const io::TempDir dir_;
  const std::filesystem::path root_ = dir_.path();
};

// The model's folder is missing at one checkpoint, and restored for the next.
TEST_F(CheckpointFaults, ASaveThatCannotBeginFailsOnAllRanksAndTheNextSucceeds) {
  const std::filesystem::path model = root_ / "model";
  dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
    TinyPolicy policy(kModel);
    Trainer trainer = policy.trainer(communicator, train::packed(60));
    CheckpointWriterOptions options{.root = {}, .side_files_from = train::golden_model(kModel)};
    options.root = (root_ / "saved").string();
    options.side_files_from = model.string();
    CheckpointWriter writer(options, communicator);
    const auto save = [&] {
      writer.save(1, Json{{"next_rollout", 1}}, policy.store, trainer.optimizer());
      writer.finish_pending();
    };
    try {
      save();
      ADD_FAILURE() << "there is no folder of the model";
    } catch (const dist::AgreedError& error) {
      EXPECT_NE(error.message().find("a checkpoint copies config.json"), std::string::npos)
          << error.message();
    }
    writer.finish_pending();  // nothing is pending
    communicator.barrier();
    if (communicator.rank() == 0) std::filesystem::copy(train::golden_model(kModel), model);
    communicator.barrier();
    save();
  });
  EXPECT_EQ(io::find_latest((root_ / "saved").string()),
            io::step_directory((root_ / "saved").string(), 1));
}

// The checkpoint folder's path is a file.
TEST_F(CheckpointFaults, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(root_ / "file") << "x";
  dist::Collective communicator;
  TinyPolicy policy(kModel);
  Trainer trainer = policy.trainer(communicator, train::packed(60));
  CheckpointWriterOptions options{.root = {}, .side_files_from = train::golden_model(kModel)};
  options.root = (root_ / "file").string();
  CheckpointWriter writer(options, communicator);
  try {
    writer.save(1, Json{{"next_rollout", 1}}, policy.store, trainer.optimizer());
    FAIL() << "a file is in the way";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_NE(error.where().find("file/step_000001"), std::string::npos) << error.where();
  }
}

}  // namespace
}  // namespace slimexx::rl

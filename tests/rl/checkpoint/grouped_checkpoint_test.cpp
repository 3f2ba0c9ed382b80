// Checkpoints of a model with several parameter groups: experts, which other ranks reduce, and
// frozen parameters, which have no optimizer state.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cpu_context.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/io/tensor_list.h"
#include "slimexx/ops/elementwise.h"
#include "test_paths.h"
#include "train/grids/two_groups.h"

namespace slimexx::rl {
namespace {

using train::ShardedAdamW;

constexpr double kLearningRate = 0.01;
constexpr const char* kFrozen = "layers.0.experts.weight";

train::OptimizerOptions adamw_options() {
  train::OptimizerOptions options;
  options.weight_decay = 0.1;
  options.clip_grad = 0;
  return options;
}

// One rank of a grid.
struct GridRank {
  GridRank(dist::Collective& ranks, const dist::GridSizes& sizes, const std::string& frozen = "")
      : host(ranks),
        grid(ranks, sizes, {}),
        position(grid.shape().position(ranks.rank())),
        store(train::parameters_of_rank(grid.shape(), ranks.rank(), frozen), {}, true) {
    train::fill_weights(store);
  }
  ShardedAdamW make_optimizer() {
    return ShardedAdamW(store, host, grid.groups(), adamw_options(), {},
                        train::list_gradient_parts(store, train::made_up_spec(), 1));
  }
  // `by_shares`: the grid is kTwoPairs, on four ranks.
  void step(ShardedAdamW& optimizer, int64_t step, bool by_shares) {
    if (by_shares)
      train::fill_gradient_shares(store, position, step);
    else
      train::fill_gradient_sums(store, position, step);
    optimizer.step(cpu_context(), kLearningRate, optimizer.reduce_gradients(cpu_context()));
  }
  dist::Collective& host;
  dist::ProcessGrid grid;
  dist::GridPosition position;
  model::ParameterStore store;
};

class GroupedCheckpoint : public testing::Test {
 protected:
  GroupedCheckpoint()
      : root_(std::filesystem::temp_directory_path() /
              ("slimexx_grouped_checkpoint_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
  }
  ~GroupedCheckpoint() override { std::filesystem::remove_all(root_); }

  // Two steps on four ranks, then a checkpoint.
  void save(const std::string& frozen) const {
    dist::run_thread_ranks(4, [&](dist::Collective& host) {
      GridRank rank(host, train::kTwoPairs, frozen);
      ShardedAdamW optimizer = rank.make_optimizer();
      for (int64_t step = 0; step < 2; ++step) rank.step(optimizer, step, true);
      const std::string model = test_data_path("golden/models/qwen3_tied_mqa");
      CheckpointWriter writer({.root = root_.string(), .side_files_from = model}, host);
      writer.save(2, Json::object(), rank.store, optimizer);
      writer.finish_pending();
    });
  }
  io::Checkpoint open() const {
    io::Checkpoint checkpoint = io::Checkpoint::open(io::find_latest(root_.string()));
    checkpoint.verify_hashes();
    return checkpoint;
  }
  std::filesystem::path root_;
};

// Masters and moments of both groups are restored on other grids: the next step equals that of an
// uninterrupted run.
TEST_F(GroupedCheckpoint, LoadsOnOtherGrids) {
  for (const std::string frozen : {"", kFrozen}) {
    std::filesystem::remove_all(root_);
    save(frozen);
    dist::Collective one_rank;
    GridRank expected(one_rank, {}, frozen);
    ShardedAdamW uninterrupted = expected.make_optimizer();
    for (int64_t step = 0; step < 3; ++step) expected.step(uninterrupted, step, false);
    for (const auto& [num_ranks, grid] : {std::pair{1, dist::GridSizes{}},
                                          {2, dist::GridSizes{.ep = 2}},
                                          {3, dist::GridSizes{}},
                                          {4, dist::GridSizes{.ep = 4}},
                                          {4, train::kTwoPairs}}) {
      dist::run_thread_ranks(num_ranks, [&, &sizes = grid](dist::Collective& host) {
        GridRank rank(host, sizes, frozen);
        const io::Checkpoint checkpoint = open();
        for (const auto& info : rank.store.infos())
          if (info.trainable) ops::fill_zero(cpu_context(), rank.store.weight(info.id));
        ShardedAdamW optimizer = rank.make_optimizer();
        check_frozen_weights(checkpoint, rank.store, optimizer);
        load_training_state(checkpoint, rank.store, optimizer);
        optimizer.set_num_steps(2);
        rank.step(optimizer, 2, false);
        EXPECT_EQ(train::first_different_weight(rank.store, expected.store), "")
            << host.size() << " ranks, ep " << sizes.ep << ", frozen " << frozen;
      });
    }
  }
}

// After steps with weight decay, a checkpoint and a resumed step, the frozen tensor has its
// original bytes in the checkpoint (stored without state) and in the export.
TEST_F(GroupedCheckpoint, FrozenTensorsKeepTheirBytes) {
  save(kFrozen);
  const io::Checkpoint checkpoint = open();
  const std::string name = "model." + std::string(kFrozen);
  const auto* entry = checkpoint.find("weights", name);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->dtype, tensor::DType::kF32);
  for (const char* section : {"master", "exp_avg", "exp_avg_sq"})
    EXPECT_EQ(checkpoint.find(section, name), nullptr) << section;
  EXPECT_EQ(checkpoint.find("weights", "model.embedding.weight"), nullptr);

  dist::Collective one_rank;
  GridRank start(one_rank, {}, kFrozen), resumed(one_rank, {}, kFrozen);
  const tensor::Tensor weights = start.store.weight(start.store.find(kFrozen));
  const auto expect_bytes = [&](const void* actual, const char* what) {
    EXPECT_EQ(std::memcmp(actual, weights.raw(), static_cast<size_t>(weights.size_bytes())), 0)
        << what;
  };
  std::vector<float> read(static_cast<size_t>(weights.num_elements()));
  checkpoint.read("weights", name, 0, weights.num_elements(), read.data());
  expect_bytes(read.data(), "checkpoint");
  ShardedAdamW optimizer = resumed.make_optimizer();
  load_training_state(checkpoint, resumed.store, optimizer);
  optimizer.set_num_steps(2);
  resumed.step(optimizer, 2, false);
  expect_bytes(resumed.store.weight(resumed.store.find(kFrozen)).raw(), "resumed");
  size_t num_exported = 0;
  for (const io::HfTensor& exported : io::list_weights(checkpoint, tensor::DType::kF32)) {
    ++num_exported;
    if (exported.name != name) continue;
    exported.read(0, weights.num_elements(), read.data());
    expect_bytes(read.data(), "exported");
  }
  EXPECT_EQ(num_exported, start.store.infos().size());
}

// A model with another frozen tensor cannot continue from the checkpoint.
TEST_F(GroupedCheckpoint, AnotherFrozenTensorIsRefused) {
  save(kFrozen);
  dist::Collective one_rank;
  GridRank rank(one_rank, {}, kFrozen);
  const ShardedAdamW optimizer = rank.make_optimizer();
  check_frozen_weights(open(), rank.store, optimizer);
  rank.store.weight(rank.store.find(kFrozen)).f32()[7] += 1;
  try {
    check_frozen_weights(open(), rank.store, optimizer);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_NE(std::string(error.what()).find("\"model.layers.0.experts.weight\""),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("element 7 is"), std::string::npos) << error.what();
  }
  // This parameter was trained in the saved run, so the checkpoint has no frozen weights for it.
  GridRank other(one_rank, {}, "embedding.weight");
  const ShardedAdamW other_optimizer = other.make_optimizer();
  EXPECT_THROW(check_frozen_weights(open(), other.store, other_optimizer), Error);
}

}  // namespace
}  // namespace slimexx::rl

#include "rl/checkpoint/run_checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "cpu_context.h"
#include "model/flat_store.h"
#include "model/read_tensor.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/boxes.h"
#include "slimexx/ops/elementwise.h"
#include "train/tiny_policy.h"

namespace slimexx::rl {
namespace {

using train::floats_of;
using train::TinyPolicy;
using train::Trainer;

constexpr const char* kModel = "llama3_scaled_tied_biased";

struct State {
  std::vector<float> weights, master, exp_avg, exp_avg_sq;
};

State state_of(dist::Collective& communicator, const TinyPolicy& policy, Trainer& trainer) {
  const train::OwnedGroup& group = trainer.optimizer().groups()[0];
  const auto gather = [&](const tensor::Tensor& own) {
    return train::gather_state(communicator, group, own);
  };
  return {floats_of(flat_weights(policy.store)), gather(group.master), gather(group.exp_avg),
          gather(group.exp_avg_sq)};
}

void expect_equal(const State& a, const State& b, const std::string& what) {
  EXPECT_EQ(first_difference(a.weights, b.weights), "") << what << ": weights";
  EXPECT_EQ(first_difference(a.master, b.master), "") << what << ": master";
  EXPECT_EQ(first_difference(a.exp_avg, b.exp_avg), "") << what << ": exp_avg";
  EXPECT_EQ(first_difference(a.exp_avg_sq, b.exp_avg_sq), "") << what << ": exp_avg_sq";
}

class RunCheckpoint : public testing::Test {
 protected:
  RunCheckpoint()
      : root_(std::filesystem::temp_directory_path() /
              ("slimexx_run_checkpoint_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
  }
  ~RunCheckpoint() override { std::filesystem::remove_all(root_); }

  CheckpointWriterOptions writer_options(bool async = true, int64_t keep_last = 3) const {
    return {.root = root_.string(),
            .side_files_from = train::golden_model(kModel),
            .keep_last = keep_last,
            .async = async};
  }
  static Trainer make_trainer(TinyPolicy& policy, dist::Collective& communicator,
                              const char* state_dtype = "float32",
                              int64_t min_part_elements = train::kAPartALayer,
                              bool in_host_memory = false) {
    train::OptimizerOptions options;
    options.state_dtype = state_dtype;
    options.optimizer_cpu_offload = in_host_memory;
    return policy.trainer(communicator, train::packed(60), options, min_part_elements);
  }
  static void train(Trainer& trainer, int begin, int end,
                    const std::function<void()>& before_update = {}) {
    for (int step = begin; step < end; ++step)
      trainer.step(train::mixed_samples(6, 100 + static_cast<uint64_t>(step)), train::full_loss(),
                   0.003, before_update);
  }
  static Json make_state(int64_t step, Trainer& trainer) {
    Json state;
    state["next_rollout"] = step;
    state["adam_steps"] = trainer.optimizer().num_steps();
    return state;
  }
  // Saves step 2 on three ranks; returns the saved state.
  State save_after_two_steps(const char* state_dtype = "float32") const {
    State saved;
    dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
      TinyPolicy policy(kModel);
      Trainer trainer = make_trainer(policy, communicator, state_dtype);
      train(trainer, 0, 2);
      CheckpointWriter writer(writer_options(), communicator);
      writer.save(2, make_state(2, trainer), policy.store, trainer.optimizer());
      writer.finish_pending();
      State own = state_of(communicator, policy, trainer);
      if (communicator.rank() == 0) saved = std::move(own);
    });
    return saved;
  }
  // Loads into a policy whose weights were changed first.
  State load(int num_ranks, const std::string& directory,
             const char* state_dtype = "float32") const {
    State state;
    dist::run_thread_ranks(num_ranks, [&](dist::Collective& communicator) {
      TinyPolicy policy(kModel);
      ops::fill_zero(cpu_context(), flat_weights(policy.store));
      Trainer trainer = make_trainer(policy, communicator, state_dtype);
      load_training_state(io::Checkpoint::open(directory), policy.store, trainer.optimizer());
      State own = state_of(communicator, policy, trainer);
      if (communicator.rank() == num_ranks - 1) state = std::move(own);
    });
    return state;
  }

  std::filesystem::path root_;
};

TEST_F(RunCheckpoint, LoadsOnAnyNumberOfRanks) {
  const State saved = save_after_two_steps();
  const std::string directory = io::find_latest(root_.string());
  EXPECT_EQ(directory, io::step_directory(root_.string(), 2));
  const auto checkpoint = io::Checkpoint::open(directory);
  checkpoint.verify_hashes();
  EXPECT_EQ(checkpoint.state()["adam_steps"], 2);
  EXPECT_TRUE(std::filesystem::exists(directory + "/config.json"));
  double moved = 0;
  for (const float m : saved.exp_avg) moved += std::abs(m);
  EXPECT_GT(moved, 0);
  for (const int ranks : {1, 2, 3, 4})
    expect_equal(load(ranks, directory), saved, std::to_string(ranks) + " ranks");
  // Only the weights, as conversion and evaluation read them.
  TinyPolicy policy(kModel);
  model::load_checkpoint_weights(policy.store, checkpoint);
  EXPECT_EQ(first_difference(floats_of(flat_weights(policy.store)), saved.weights), "");
}

// A checkpoint that two ranks of an older version saved, whose pieces are never boxes, and its
// weights.
TEST_F(RunCheckpoint, LoadsFormatOne) {
  const std::string directory = test_data_path("golden/checkpoints/format_1");
  const auto checkpoint = io::Checkpoint::open(directory);
  checkpoint.verify_hashes();
  const io::SafetensorsFile weights(
      test_data_path("golden/checkpoints/format_1.weights.safetensors"));
  const auto spec = model::read_model_spec(parse_json_file(directory + "/config.json"), directory);
  model::ParameterStore store(spec, {}, true);
  model::load_checkpoint_weights(store, checkpoint);
  const auto expect_weights = [&](const char* what) {
    for (const auto& tensor : model::list_tensor_sources(store.infos())) {
      const auto* entry = weights.find(tensor.name);
      ASSERT_NE(entry, nullptr) << tensor.name;
      std::vector<float> expected(static_cast<size_t>(entry->num_elements())), now(expected.size());
      weights.read(*entry, 0, entry->num_elements(), expected.data());
      model::read_tensor(store, tensor, 0, entry->num_elements(), now.data());
      EXPECT_EQ(first_difference(now, expected), "") << what << ": " << tensor.name;
    }
  };
  expect_weights("weights");
  ops::fill_zero(cpu_context(), flat_weights(store));
  dist::Collective one_rank;
  train::ShardedAdamW optimizer(store, one_rank, dist::groups_of_one(), {}, {});
  load_training_state(checkpoint, store, optimizer);
  expect_weights("masters");
  for (const char* section : {"exp_avg", "exp_avg_sq"}) {
    std::vector<float> moments(static_cast<size_t>(store.infos()[0].num_elements()));
    checkpoint.read(section, store.infos()[0].parts[0].name, 0, std::ssize(moments),
                    moments.data());
    const train::OwnedGroup& group = optimizer.groups()[0];
    const tensor::Tensor own = section == std::string("exp_avg") ? group.exp_avg : group.exp_avg_sq;
    EXPECT_EQ(first_difference(floats_of(own.rows(0, std::ssize(moments))), moments), "")
        << section;
  }
}

// The format does not depend on how ranks split the state. A checkpoint whose ranks each owned one
// range of the whole loads on ranks that own a slice of every layer, and vice versa.
TEST_F(RunCheckpoint, LoadsWhateverTheCut) {
  const auto cut = [](bool by_layers) {
    return by_layers ? train::kAPartALayer : std::numeric_limits<int64_t>::max();
  };
  for (const bool by_layers : {false, true}) {
    std::filesystem::remove_all(root_);
    State saved;
    dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
      TinyPolicy policy(kModel), other(kModel);
      Trainer trainer = make_trainer(policy, communicator, "float32", cut(by_layers));
      EXPECT_EQ(trainer.optimizer().groups()[0].pieces.size() > 1, by_layers);
      train(trainer, 0, 2);
      CheckpointWriter writer(writer_options(), communicator);
      writer.save(2, make_state(2, trainer), policy.store, trainer.optimizer());
      writer.finish_pending();
      const State own = state_of(communicator, policy, trainer);
      Trainer resumed = make_trainer(other, communicator, "float32", cut(!by_layers));
      load_training_state(io::Checkpoint::open(io::find_latest(root_.string())), other.store,
                          resumed.optimizer());
      expect_equal(state_of(communicator, other, resumed), own, by_layers ? "to one" : "to layers");
    });
  }
}

// E3 for the trainer: a run that is stopped after two steps and resumed gives the same bytes as an
// uninterrupted run. The first run trains three more steps during the write, and the checkpoint
// must not contain these. State in host memory is written without a copy.
TEST_F(RunCheckpoint, ResumedEqualsUninterrupted) {
  struct Case {
    int ranks;
    bool async;
    const char* dtype;
    bool in_host_memory = false;
  };
  for (const Case& c : {Case{1, true, "float32"},
                        {1, false, "float32"},
                        {3, true, "float32"},
                        {3, false, "float32"},
                        {1, true, "bfloat16"},
                        {3, true, "bfloat16"},
                        {3, false, "bfloat16"},
                        {1, true, "float32", true},
                        {3, true, "bfloat16", true},
                        {3, false, "float32", true}}) {
    std::filesystem::remove_all(root_);
    dist::run_thread_ranks(c.ranks, [&](dist::Collective& communicator) {
      TinyPolicy policy(kModel), resumed_policy(kModel);
      const auto make = [&](TinyPolicy& of) {
        return make_trainer(of, communicator, c.dtype, train::kAPartALayer, c.in_host_memory);
      };
      Trainer trainer = make(policy);
      EXPECT_EQ(snapshot_bytes(trainer.optimizer(), false) == 0, c.in_host_memory);
      CheckpointWriter writer(writer_options(c.async), communicator);
      train(trainer, 0, 2);
      const State at_save = state_of(communicator, policy, trainer);
      writer.save(2, make_state(2, trainer), policy.store, trainer.optimizer());
      train(trainer, 2, 5, [&] { writer.release_state(); });
      writer.finish_pending();

      const auto checkpoint = io::Checkpoint::open(io::find_latest(root_.string()));
      ops::fill_zero(cpu_context(), flat_weights(resumed_policy.store));
      Trainer resumed = make(resumed_policy);
      load_training_state(checkpoint, resumed_policy.store, resumed.optimizer());
      resumed.optimizer().set_num_steps(checkpoint.state()["adam_steps"].get<int64_t>());
      const std::string what = std::to_string(c.ranks) + (c.async ? " ranks, async, " : " ranks, ");
      expect_equal(state_of(communicator, resumed_policy, resumed), at_save, what + c.dtype);
      train(resumed, 2, 5);
      expect_equal(state_of(communicator, resumed_policy, resumed),
                   state_of(communicator, policy, trainer), what + c.dtype);
    });
  }
}

// A checkpoint resumes under the other optimizer.state_dtype: from bfloat16 exactly; to bfloat16
// with rounded moments, which is logged.
TEST_F(RunCheckpoint, LoadsUnderTheOtherStateType) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    std::filesystem::remove_all(root_);
    const State saved = save_after_two_steps(dtype);
    const std::string directory = io::find_latest(root_.string());
    State rounded = saved;
    for (std::vector<float>* moments : {&rounded.exp_avg, &rounded.exp_avg_sq})
      for (float& x : *moments) x = tensor::bf16_to_f32(tensor::f32_to_bf16(x));
    const bool is_wide = dtype == std::string("float32");
    EXPECT_EQ(first_difference(rounded.exp_avg, saved.exp_avg) != "", is_wide);
    for (const int ranks : {1, 2}) {
      const std::string what = std::string("of ") + dtype + ", " + std::to_string(ranks) + " ranks";
      expect_equal(load(ranks, directory, "float32"), saved, what + " to float32");
      ::testing::internal::CaptureStderr();
      expect_equal(load(ranks, directory, "bfloat16"), rounded, what + " to bfloat16");
      const std::string log = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(log.find("were rounded to bfloat16") != std::string::npos, is_wide) << log;
    }
  }
}

// After save() returns, the state may change; if it is in host memory, after release_state().
TEST_F(RunCheckpoint, AsyncSaveWritesASnapshot) {
  dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
    CheckpointWriter writer(writer_options(), communicator);
    for (int64_t step = 1; step <= 6; ++step) {
      const bool in_host_memory = step % 2 == 0;
      TinyPolicy policy(kModel), loaded_policy(kModel);
      Trainer trainer =
          make_trainer(policy, communicator, "float32", train::kAPartALayer, in_host_memory);
      Trainer loaded = make_trainer(loaded_policy, communicator);
      train(trainer, 0, 1);
      const State expected = state_of(communicator, policy, trainer);
      const auto& optimizer = trainer.optimizer();
      const train::OwnedGroup& group = optimizer.groups()[0];
      writer.save(step, make_state(step, trainer), policy.store, optimizer);
      if (in_host_memory) writer.release_state();
      for (const tensor::Tensor& t : {group.master, group.exp_avg, group.exp_avg_sq})
        std::fill_n(t.f32(), t.num_elements(), -123.0f);
      writer.finish_pending();
      load_training_state(io::Checkpoint::open(io::step_directory(root_.string(), step)),
                          loaded_policy.store, loaded.optimizer());
      expect_equal(state_of(communicator, loaded_policy, loaded), expected,
                   "step " + std::to_string(step));
    }
  });
}

TEST_F(RunCheckpoint, PollCommitsWhatAllHaveWritten) {
  dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
    TinyPolicy policy(kModel);
    Trainer trainer = make_trainer(policy, communicator);
    CheckpointWriter writer(writer_options(), communicator);
    writer.poll();  // nothing is in flight
    writer.save(1, make_state(1, trainer), policy.store, trainer.optimizer());
    const std::string manifest = io::step_directory(root_.string(), 1) + "/manifest.json";
    for (int tries = 0; tries < 20000; ++tries) {
      writer.poll();
      communicator.barrier();
      if (std::filesystem::exists(manifest)) break;
      usleep(500);
      communicator.barrier();
    }
    EXPECT_TRUE(std::filesystem::exists(manifest));
    communicator.barrier();
    writer.finish_pending();  // nothing is left to commit
  });
}

TEST_F(RunCheckpoint, AnotherSaveFinishesTheFirstAndOldOnesGo) {
  dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
    TinyPolicy policy(kModel);
    Trainer trainer = make_trainer(policy, communicator);
    CheckpointWriter writer(writer_options(true, 2), communicator);
    for (int64_t step = 1; step <= 4; ++step)
      writer.save(step, make_state(step, trainer), policy.store, trainer.optimizer());
    writer.finish_pending();
  });
  for (int64_t step = 1; step <= 4; ++step) {
    EXPECT_EQ(std::filesystem::exists(io::step_directory(root_.string(), step) + "/manifest.json"),
              step > 2)
        << step;
  }
  EXPECT_EQ(io::find_latest(root_.string()), io::step_directory(root_.string(), 4));
}

// A run that ends during a save leaves a folder without a manifest, which does not count as a
// checkpoint.
TEST_F(RunCheckpoint, UnfinishedSaveIsNoCheckpoint) {
  dist::Collective communicator;
  TinyPolicy policy(kModel);
  Trainer trainer = make_trainer(policy, communicator);
  {
    CheckpointWriter writer(writer_options(), communicator);
    writer.save(1, make_state(1, trainer), policy.store, trainer.optimizer());
    writer.finish_pending();
    writer.save(2, make_state(2, trainer), policy.store, trainer.optimizer());
  }
  EXPECT_EQ(io::find_latest(root_.string()), io::step_directory(root_.string(), 1));
  // Saved again, step 2 is complete.
  CheckpointWriter writer(writer_options(), communicator);
  writer.save(2, make_state(2, trainer), policy.store, trainer.optimizer());
  writer.finish_pending();
  EXPECT_EQ(io::find_latest(root_.string()), io::step_directory(root_.string(), 2));
  io::Checkpoint::open(io::step_directory(root_.string(), 2)).verify_hashes();
}

TEST_F(RunCheckpoint, AnotherModelIsRefused) {
  dist::Collective communicator;
  TinyPolicy policy(kModel), other("qwen2_untied");
  Trainer trainer = make_trainer(policy, communicator);
  CheckpointWriter writer(writer_options(), communicator);
  writer.save(1, make_state(1, trainer), policy.store, trainer.optimizer());
  writer.finish_pending();
  Trainer another = make_trainer(other, communicator);
  try {
    load_training_state(io::Checkpoint::open(io::find_latest(root_.string())), other.store,
                        another.optimizer());
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInput);
    const std::string text = e.what();
    EXPECT_NE(text.find("section \"master\" has no tensor"), std::string::npos) << text;
    EXPECT_NE(text.find(io::step_directory(root_.string(), 1)), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace slimexx::rl

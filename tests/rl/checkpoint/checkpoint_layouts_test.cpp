// A checkpoint of one layout is loaded on another. Ranks are threads; each has its shard of the
// parameters and its slices of the optimizer's state.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/cut_parameters.h"
#include "model/made_up_family.h"
#include "rl/checkpoint/checkpoint_sections.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "slimexx/base/file.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/layout.h"

namespace slimexx::rl {
namespace {

using Infos = std::vector<model::ParameterInfo>;

// The layout in which a checkpoint is saved or loaded.
struct Form {
  Infos whole;
  int ranks;
  dist::GridSizes sizes;
};

// The value of an element of a tensor on disk, by section.
float value_of(size_t section, const std::string& name, int64_t on_disk) {
  float value = static_cast<float>(section) + 0.125f;
  for (const char c : name) value = value * 1.25f + static_cast<float>(c);
  return value * (1.0f + static_cast<float>(on_disk) / 1024.0f);
}

std::vector<float> values_of(const model::ParameterInfo& info, size_t section) {
  std::vector<float> values(static_cast<size_t>(info.num_elements()));
  for (const auto& run : model::list_runs(info))
    for (int64_t i = 0; i < run.size; ++i)
      values[static_cast<size_t>(run.in_parameter + i)] =
          value_of(section, info.parts[run.part].name, run.on_disk + i);
  return values;
}

// One rank of a run.
struct Rank {
  Rank(const Form& form, dist::Collective& host)
      : grid(host, form.sizes, {}),
        store(
            *model::make_layout({form.whole}, grid.shape()).ranks[static_cast<size_t>(host.rank())],
            tensor::Device{}, true),
        optimizer(store, host, grid.groups(), {}, {}) {}

  // Calls visit(expected, actual) for each range of a parameter that this rank owns.
  template <class Visit>
  void for_each_owned(const Visit& visit) {
    for (size_t s = 0; s < std::size(kSections); ++s) {
      for (const train::OwnedGroup& group : optimizer.groups()) {
        for (const auto& info : store.infos()) {
          if (!group.is_trained() || &store.group_of(info) != group.parameters) continue;
          const std::vector<float> all = values_of(info, s);
          float* const own = (group.*kSections[s].second).f32();
          for (const Overlap& o : list_overlaps(info, group.pieces))
            visit(info.name,
                  std::span(all).subspan(static_cast<size_t>(o.begin),
                                         static_cast<size_t>(o.end - o.begin)),
                  own + o.at);
        }
      }
    }
  }

  dist::ProcessGrid grid;
  model::ParameterStore store;
  train::ShardedAdamW optimizer;
};

class CheckpointLayouts : public testing::Test {
 protected:
  CheckpointLayouts()
      : root_(std::filesystem::temp_directory_path() /
              ("slimexx_checkpoint_layouts_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_ / "side");
    write_file_atomic(root_ / "side/config.json", "{}");
  }
  ~CheckpointLayouts() override { std::filesystem::remove_all(root_); }

  void save(const Form& form) const {
    dist::run_thread_ranks(form.ranks, [&](dist::Collective& host) {
      Rank rank(form, host);
      for (const auto& info : rank.store.infos())
        rank.store.write_weights(info, 0, values_of(info, 0).data(), info.num_elements());
      rank.for_each_owned([](const std::string&, std::span<const float> values, float* own) {
        std::ranges::copy(values, own);
      });
      CheckpointWriter writer(
          {.root = root_.string(), .side_files_from = (root_ / "side").string(), .keep_last = 1},
          host);
      writer.save(1, Json::object(), rank.store, rank.optimizer);
      writer.finish_pending();
      // The host memory of a rank is exactly its own state.
      int64_t owned = 0;
      for (const auto& group : rank.optimizer.groups())
        owned += train::count_elements(group.pieces) * (group.is_trained() ? 12 : 4);
      EXPECT_EQ(snapshot_bytes(rank.optimizer, false), owned);
    });
  }
  void load(const Form& form, const std::string& what) const {
    dist::run_thread_ranks(form.ranks, [&](dist::Collective& host) {
      Rank rank(form, host);
      const auto checkpoint = io::Checkpoint::open(io::find_latest(root_.string()));
      for (const auto& info : rank.store.infos())
        if (!info.trainable)
          rank.store.write_weights(info, 0, values_of(info, 0).data(), info.num_elements());
      check_frozen_weights(checkpoint, rank.store, rank.optimizer);
      load_training_state(checkpoint, rank.store, rank.optimizer);
      rank.for_each_owned(
          [&](const std::string& name, std::span<const float> values, const float* own) {
            EXPECT_TRUE(std::ranges::equal(values, std::span(own, values.size())))
                << what << ": " << name << " on rank " << host.rank();
          });
      // Each weight counts once, even if several ranks hold it.
      double expected = 0;
      for (const auto& info : form.whole)
        for (const float x : values_of(info, 0)) expected += info.trainable ? double{x} * x : 0;
      tensor::Arena scratch({}, 1 << 20, "test");
      EXPECT_NEAR(rank.optimizer.weight_norm(ops::compute_context(scratch)) / std::sqrt(expected),
                  1, 1e-6)
          << what;
      // The weights on all ranks are updated.
      for (const auto& info : rank.store.infos())
        EXPECT_EQ(model::values_of(rank.store, info), values_of(info, 0))
            << what << ": " << info.name << " on rank " << host.rank();
    });
  }

  std::filesystem::path root_;
};

TEST_F(CheckpointLayouts, RowsAndColumnsBothWays) {
  const std::vector<Form> forms = {
      {model::cut_parameters(0, 1), 4, {.tp = 4}}, {model::cut_parameters(1, 0), 4, {.tp = 4}},
      {model::cut_parameters(1, 0), 4, {.tp = 2}}, {model::cut_parameters(0, 1), 6, {.tp = 6}},
      {model::cut_parameters(0, 1), 3, {}},        {model::cut_parameters(0, 1), 1, {}}};
  for (size_t from = 0; from < forms.size(); ++from) {
    save(forms[from]);
    for (size_t to = 0; to < forms.size(); ++to)
      load(forms[to], std::to_string(from) + " to " + std::to_string(to));
  }
}

TEST_F(CheckpointLayouts, HeadsExpertsAndFrozenTensors) {
  const std::vector<Form> forms = {{model::made_up_parameters(), 8, {.tp = 2, .ep = 2, .etp = 2}},
                                   {model::made_up_parameters(), 4, {.ep = 4}},
                                   {model::made_up_parameters(), 4, {.tp = 2}},
                                   {model::made_up_parameters(), 1, {}}};
  for (size_t from = 0; from < forms.size(); ++from) {
    save(forms[from]);
    for (size_t to = 0; to < forms.size(); ++to)
      load(forms[to], std::to_string(from) + " to " + std::to_string(to));
  }
}

}  // namespace
}  // namespace slimexx::rl

#include "slimexx/model/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/temp_dir.h"
#include "model/made_up_family.h"
#include "model/read_tensor.h"
#include "model/reduce_axis.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/ranges.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/model/load_hf.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {
namespace {

const dist::GridSizes kSizes{.tp = 2, .ep = 2, .etp = 2};
constexpr int kRanks = 8;

TEST(Boxes, RangesOfParametersAreFewBoxesOfTheirTensors) {
  PhiloxStream random(5, 9);
  const MadeUpTensors tensors = made_up_tensors();
  for (const ParameterInfo& info : made_up_parameters()) {
    const std::vector<float> values = made_up_values(info);
    for (int round = 0; round < 40; ++round) {
      const auto n = static_cast<uint64_t>(info.num_elements());
      const auto begin = static_cast<int64_t>(random.next_below(n));
      const auto end =
          begin + static_cast<int64_t>(random.next_below(n - static_cast<uint64_t>(begin) + 1));
      std::vector<int> seen(n);
      const auto boxes = list_boxes(info, begin, end);
      EXPECT_LE(boxes.size(), 5 * info.parts.size());
      for (const ElementRun& run : list_runs(info, begin, end)) {
        const auto& tensor = tensors.at(info.parts[run.part].name);
        for (int64_t i = 0; i < run.size; ++i) {
          const auto at = static_cast<size_t>(run.in_parameter + i);
          ++seen[at];
          ASSERT_EQ(values[at], tensor[static_cast<size_t>(run.on_disk + i)]) << info.name;
        }
      }
      for (int64_t i = 0; i < static_cast<int64_t>(n); ++i)
        ASSERT_EQ(seen[static_cast<size_t>(i)], i >= begin && i < end) << info.name << " at " << i;
    }
  }
}

// Each element is counted on one rank, the first of those that sum its gradient.
TEST(Layout, EveryElementIsCountedOnce) {
  const dist::GridShape grid(kRanks, kSizes);
  const Layout layout = make_layout({made_up_parameters()}, grid);
  ASSERT_EQ(layout.ranks.size(), static_cast<size_t>(kRanks));
  std::map<std::string, std::vector<int>> counted;
  for (const auto& [name, values] : made_up_tensors()) counted[name].resize(values.size());
  for (int rank = 0; rank < kRanks; ++rank) {
    for (const ParameterInfo& info : *layout.ranks[static_cast<size_t>(rank)]) {
      if (grid.coordinate(reduce_axis(info.reduce_group), rank) > 0) continue;
      for (const ElementRun& run : list_runs(info)) {
        if (!info.parts[run.part].is_counted) continue;
        for (int64_t i = 0; i < run.size; ++i)
          ++counted[info.parts[run.part].name][static_cast<size_t>(run.on_disk + i)];
      }
    }
  }
  for (const auto& [name, counts] : counted)
    EXPECT_EQ(counts, std::vector<int>(counts.size(), 1)) << name;
}

// A part that spans two sections is split only where the sections are cut.
TEST(Layout, OneRankHoldsThePartsAsTheyAre) {
  ParameterInfo whole{.name = "gate_up",
                      .shape = {8, 6},
                      .shards = {{.axis = 0, .sections = {{4, 1}, {4, 1}}}},
                      .parts = {{.name = "gate_up", .shape = {8, 6}}}};
  EXPECT_EQ(narrow(whole, {}, {}).parts.size(), 1u);
  EXPECT_EQ(narrow(whole, {.tp = 2}, {}).parts.size(), 2u);
}

TEST(Layout, RanksHoldHeadsAndColumnsAndExperts) {
  const dist::GridShape grid(kRanks, kSizes);
  const Layout layout = make_layout({made_up_parameters()}, grid);
  const auto& last = *layout.ranks[3];  // tp 1; etp 1 and ep 1
  EXPECT_EQ(last[0].shape, (std::vector<int64_t>{8, 6}));
  ASSERT_EQ(last[0].parts.size(), 3u);
  EXPECT_EQ(last[0].parts[1].begin, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(last[0].parts[1].at, (std::vector<int64_t>{4, 0}));
  EXPECT_EQ(last[1].parts[0].begin, (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(last[7].shape, (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(last[7].parts[0].name, "expert2.up");
  // Two key heads on four ranks: neighbours hold the same head, and one of them counts it.
  const auto keys = [&](int tp) {
    ParameterInfo info{.name = "k",
                       .shape = {4, 6},
                       .shards = {{.axis = 0, .sections = {{4, 2}}}},
                       .parts = {{.name = "k", .shape = {4, 6}}}};
    dist::GridPosition position;
    position.tp = tp;
    return narrow(info, {.tp = 4}, position);
  };
  for (int tp = 0; tp < 4; ++tp) {
    EXPECT_EQ(keys(tp).parts[0].begin[0], tp / 2 * 2);
    EXPECT_EQ(keys(tp).parts[0].is_counted, tp % 2 == 0);
  }
  try {
    narrow(made_up_parameters()[0], {.tp = 3}, {});
    FAIL() << "16 rows in units of 2 are not divisible by 3";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
  }
}

// Four experts with two redundant copies on four ranks: 0 1 | 2 3 | 0 | 1.
TEST(Layout, RanksHoldCopiesOfExperts) {
  const dist::GridShape grid(4, {.ep = 4});
  const Layout layout = make_layout({made_up_parameters(6)}, grid);
  const struct {
    std::vector<int64_t> experts;
    bool is_counted;
  } ranks[] = {{{0, 1}, true}, {{2, 3}, true}, {{0}, false}, {{1}, false}};
  for (size_t rank = 0; rank < 4; ++rank) {
    SCOPED_TRACE("rank " + std::to_string(rank));
    const auto& [experts, is_counted] = ranks[rank];
    const ParameterInfo& up = (*layout.ranks[rank])[7];
    EXPECT_EQ(up.shape, (std::vector<int64_t>{std::ssize(experts), 6, 5}));
    ASSERT_EQ(up.parts.size(), experts.size());
    for (size_t i = 0; i < experts.size(); ++i) {
      EXPECT_EQ(up.parts[i].name, "expert" + std::to_string(experts[i]) + ".up");
      EXPECT_EQ(up.parts[i].at, (std::vector<int64_t>{static_cast<int64_t>(i), 0, 0}));
      EXPECT_EQ(up.parts[i].is_counted, is_counted);
    }
  }
  // Here a rank's copies wrap around from the last expert to the first.
  const Layout wrapped = make_layout({made_up_parameters(5)}, dist::GridShape(2, {.ep = 2}));
  const ParameterInfo& up = (*wrapped.ranks[1])[7];
  EXPECT_EQ(up.shape, (std::vector<int64_t>{2, 6, 5}));
  ASSERT_EQ(up.parts.size(), 2u);
  EXPECT_EQ(up.parts[0].name, "expert3.up");
  EXPECT_EQ(up.parts[1].name, "expert0.up");
  EXPECT_EQ(up.parts[1].at, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_TRUE(up.parts[0].is_counted);
  EXPECT_FALSE(up.parts[1].is_counted);
}

class MadeUpFolder : public testing::Test {
 protected:
  MadeUpFolder() {
    std::filesystem::create_directory(dir_.file("template"));
    dir_.put("template/config.json", "{}");
    io::write_hf_folder(dir_.file("hf"), made_up_folder(),
                        {.template_directory = dir_.file("template"), .shards = {}});
  }
  io::TempDir dir_;
};

TEST_F(MadeUpFolder, EveryRankReadsItsBoxes) {
  const Layout layout = make_layout({made_up_parameters()}, dist::GridShape(kRanks, kSizes));
  const auto folder = io::HfFolder::open(dir_.file("hf"));
  for (const auto& infos : layout.ranks) {
    ParameterStore store(*infos, {}, false);
    load_hf_weights(store, {}, folder, {}, &layout);
    for (const ParameterInfo& info : store.infos())
      EXPECT_EQ(values_of(store, info), made_up_values(info)) << info.name;
  }
}

// Bytes of the folder that a host's ranks need; bytes that several ranks hold count once.
int64_t count_needed_bytes(const Layout& held) {
  std::map<std::string, std::vector<bool>> needed;
  for (const auto& infos : held.ranks) {
    for (const ParameterInfo& info : *infos) {
      for (const ElementRun& run : list_runs(info)) {
        const HfPart& part = info.parts[run.part];
        auto& elements = needed[part.name];
        elements.resize(static_cast<size_t>(tensor::count_elements(tensor::whole_box(part.shape))));
        for (int64_t i = 0; i < run.size; ++i)
          elements[static_cast<size_t>(run.on_disk + i)] = true;
      }
    }
  }
  int64_t bytes = 0;
  for (const auto& [name, elements] : needed) bytes += std::ranges::count(elements, true) * 2;
  return bytes;
}

// Eight ranks on one host or two: the ranks of a host read each needed byte once and share it.
TEST_F(MadeUpFolder, RanksOfAHostReadEachByteOnce) {
  for (const dist::GridSizes& sizes : {dist::GridSizes{}, kSizes, dist::GridSizes{.ep = 4}}) {
    const Layout layout = make_layout({made_up_parameters()}, dist::GridShape(kRanks, sizes));
    for (const int num_hosts : {1, 2}) {
      std::vector<int64_t> read(kRanks), needed(static_cast<size_t>(num_hosts));
      dist::run_thread_ranks(kRanks, [&](dist::Collective& world) {
        const int host = world.rank() * num_hosts / kRanks;
        const auto ranks = world.split(host, 0);
        const int first = world.rank() - ranks->rank();
        const Layout held{
            {layout.ranks.begin() + first, layout.ranks.begin() + first + ranks->size()}};
        const auto own = static_cast<size_t>(world.rank());
        ParameterStore store(*layout.ranks[own], {}, false);
        const HostRanks host_ranks{*ranks, held};
        read[own] = load_hf_weights(store, {}, io::HfFolder::open(dir_.file("hf")), {}, &layout,
                                    host_ranks);
        for (const ParameterInfo& info : store.infos())
          EXPECT_EQ(values_of(store, info), made_up_values(info)) << info.name;
        if (ranks->rank() == 0) needed[static_cast<size_t>(host)] = count_needed_bytes(held);
      });
      EXPECT_EQ(std::accumulate(read.begin(), read.end(), int64_t{0}),
                std::accumulate(needed.begin(), needed.end(), int64_t{0}));
      EXPECT_LT(*std::ranges::max_element(read), needed[0]) << "one rank reads it all";
    }
  }
}

TEST_F(MadeUpFolder, ARankThatReadsBadValuesTellsTheOthers) {
  std::vector<io::HfTensor> tensors = made_up_folder();
  tensors[0].read = [](int64_t begin, int64_t end, void* out) {
    auto* bits = static_cast<uint16_t*>(out);
    for (int64_t i = begin; i < end; ++i) bits[i - begin] = i == 7 || i == 41 ? 0x7FC0 : 0x3F80;
  };
  io::write_hf_folder(dir_.file("bad"), tensors,
                      {.template_directory = dir_.file("template"), .shards = {}});
  const Layout layout = make_layout({made_up_parameters()}, dist::GridShape(2, {}));
  std::vector<std::string> errors(2);
  dist::run_thread_ranks(2, [&](dist::Collective& world) {
    ParameterStore store(made_up_parameters(), {}, false);
    const HostRanks host{world, layout};
    try {
      load_hf_weights(store, {}, io::HfFolder::open(dir_.file("bad")), {}, nullptr, host);
    } catch (const Error& error) {
      errors[static_cast<size_t>(world.rank())] = error.message();
    }
  });
  EXPECT_EQ(
      errors[0],
      "1 fault in the weights:\n    q: 2 values are NaN or infinite, first at element 7, in " +
          dir_.file("bad/model.safetensors"));
  EXPECT_EQ(errors[1], errors[0]);
}

TEST_F(MadeUpFolder, ComesBackByteForByte) {
  ParameterStore store(made_up_parameters(), {}, true);
  EXPECT_EQ(store.groups().size(), 3u);  // dense, frozen, experts
  load_hf_weights(store, {}, io::HfFolder::open(dir_.file("hf")));
  std::vector<io::HfTensor> tensors;
  for (const TensorSource& source : list_tensor_sources(store.infos())) {
    tensors.push_back({source.name, tensor::DType::kBF16, source.shape,
                       [&store, source](int64_t begin, int64_t end, void* out) {
                         std::vector<float> values(static_cast<size_t>(end - begin));
                         read_tensor(store, source, begin, end, values.data());
                         tensor::convert_elements(tensor::DType::kF32, values.data(),
                                                  tensor::DType::kBF16, out, end - begin);
                       }});
  }
  io::write_hf_folder(dir_.file("back"), tensors,
                      {.template_directory = dir_.file("template"), .shards = {}});
  EXPECT_EQ(io::TempDir::read_bytes(dir_.file("back/model.safetensors")),
            io::TempDir::read_bytes(dir_.file("hf/model.safetensors")));
}

// A checkpoint saved by the ranks of one grid is loaded by the ranks of another.
TEST_F(MadeUpFolder, CheckpointsMoveBetweenLayouts) {
  const dist::GridShape grid(kRanks, kSizes);
  const Layout from = make_layout({made_up_parameters()}, grid);
  const auto folder = io::HfFolder::open(dir_.file("hf"));
  std::vector<io::ShardInfo> shards;
  for (int rank = 0; rank < kRanks; ++rank) {
    ParameterStore store(*from.ranks[static_cast<size_t>(rank)], {}, false);
    load_hf_weights(store, {}, folder, {}, &from);
    std::vector<io::CheckpointTensor> tensors;
    std::vector<io::CheckpointPiece> pieces;
    for (const TensorSource& source : list_tensor_sources(store.infos()))
      tensors.push_back({"master", source.name, tensor::DType::kF32, source.shape});
    for (const ParameterInfo& info : store.infos()) {
      // The ranks that sum a parameter's gradient each write a slice of it.
      const dist::GridAxis axis = reduce_axis(info.reduce_group);
      const auto slices = dist::split_range(info.num_elements(), grid.size(axis), 1);
      const auto& slice = slices[static_cast<size_t>(grid.coordinate(axis, rank))];
      add_checkpoint_pieces(info, slice.begin, slice.end, "master", tensor::DType::kF32,
                            store.weight(info.id).raw(), pieces);
    }
    shards.push_back(io::write_shard(dir_.file("step"), rank, kRanks, tensors, pieces));
  }
  io::write_manifest(dir_.file("step"), shards, {});
  const auto checkpoint = io::Checkpoint::open(dir_.file("step"));
  for (const dist::GridSizes& sizes :
       {dist::GridSizes{}, dist::GridSizes{.ep = 4}, dist::GridSizes{.tp = 2, .etp = 1}}) {
    for (const auto& infos : make_layout({made_up_parameters()}, dist::GridShape(4, sizes)).ranks) {
      ParameterStore store(*infos, {}, false);
      load_checkpoint_weights(store, checkpoint);
      for (const ParameterInfo& info : store.infos())
        EXPECT_EQ(values_of(store, info), made_up_values(info)) << info.name;
    }
  }
}

}  // namespace
}  // namespace slimexx::model

#include "slimexx/train/gradient_parts.h"

#include "train/oracle.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

std::vector<dist::Range> ranges_of(const std::vector<GradientPart>& parts) {
  std::vector<dist::Range> ranges;
  for (const GradientPart& part : parts) ranges.push_back(part.range);
  return ranges;
}

TEST(GradientParts, AreTheHeadTheLayersFromTheLastAndTheEmbedding) {
  const TinyPolicy policy("qwen2_untied");
  const auto offset_of = [&](const std::string& name) {
    return policy.store.gradient(policy.store.find(name)).f32() -
           flat_gradients(policy.store).f32();
  };
  const auto parts = list_gradient_parts(policy.store, policy.spec, 1);
  const std::vector<int64_t> bounds = {policy.store.num_elements(), offset_of("final_norm.weight"),
                                       offset_of("layers.1.input_norm.weight"),
                                       offset_of("layers.0.input_norm.weight"), 0};
  ASSERT_EQ(parts.size(), 4u);
  for (size_t p = 0; p < parts.size(); ++p) {
    EXPECT_EQ(parts[p].range, (dist::Range{bounds[p + 1], bounds[p]})) << p;
    EXPECT_EQ(parts[p].last_stage, static_cast<int64_t>(p));
  }
}

TEST(GradientParts, SmallOnesWaitForTheNext) {
  const TinyPolicy policy("qwen2_untied");
  const auto fine = list_gradient_parts(policy.store, policy.spec, 1);
  // The limit exceeds the head, so that the head joins the last layer's part.
  const auto merged = list_gradient_parts(policy.store, policy.spec, fine[0].range.size() + 16);
  EXPECT_EQ(merged[0].range, (dist::Range{fine[1].range.begin, fine[0].range.end}));
  EXPECT_EQ(merged[0].last_stage, 1);
  for (size_t p = 0; p + 1 < merged.size(); ++p)
    EXPECT_GE(merged[p].range.size(), fine[0].range.size() + 16);
  EXPECT_EQ(merged.back().range.begin, 0);
  EXPECT_EQ(merged.back().last_stage, policy.spec.num_layers() + 1);
  const auto one = list_gradient_parts(policy.store, policy.spec, int64_t{1} << 26);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].range, (dist::Range{0, policy.store.num_elements()}));
}

// MTP layers are stored after the head, and backward finishes them first.
TEST(GradientParts, MtpLayersGoWithTheHead) {
  const Oracle policy(test_data_path("golden/oracle/glm4_moe"), true);
  size_t found = 0;
  for (const GradientPart& part : list_gradient_parts(policy.store, policy.spec, kAPartALayer)) {
    for (const auto& info : policy.store.infos()) {
      const bool is_inside = static_cast<size_t>(info.group) == part.group &&
                             info.offset >= part.range.begin && info.offset < part.range.end;
      if (!is_inside || !policy.is_mtp(info)) continue;
      EXPECT_EQ(part.last_stage, 0) << info.name;
      ++found;
    }
  }
  EXPECT_GT(found, 10u);
}

TEST(GradientParts, SmallModelsHaveSmallerOnes) {
  EXPECT_EQ(choose_min_part_elements(int64_t{1} << 32), int64_t{1} << 26);
  EXPECT_EQ(choose_min_part_elements(16000), 1000);
  const TinyPolicy policy("qwen2_untied");
  EXPECT_GT(list_gradient_parts(policy.store, policy.spec,
                                choose_min_part_elements(policy.store.num_elements()))
                .size(),
            2u);
}

// All ranks have equal shares of every part, up to rounding to a multiple of 16.
TEST(GradientParts, EveryRankHasAnEqualShareOfEveryPart) {
  const TinyPolicy policy("qwen2_untied");
  const auto parts = ranges_of(list_gradient_parts(policy.store, policy.spec, 1));
  for (const int ranks : {1, 2, 3, 8}) {
    const auto slices = split_parts(parts, ranks);
    ASSERT_EQ(slices.size(), parts.size() * static_cast<size_t>(ranks));
    for (size_t s = 0; s < slices.size(); ++s) {
      const dist::Range& part = parts[s / static_cast<size_t>(ranks)];
      const auto rank = static_cast<int64_t>(s) % ranks;
      EXPECT_EQ(slices[s].begin, rank == 0 ? part.begin : slices[s - 1].end);
      if (rank == ranks - 1) {
        EXPECT_EQ(slices[s].end, part.end);
      }
      EXPECT_LE(slices[s].size(), (part.size() / ranks + 16 + 15) / 16 * 16);
      EXPECT_GE(slices[s].size(), part.size() / ranks - 16 * ranks);
    }
  }
}

TEST(GradientParts, OwnersHoldEachElementOnce) {
  const std::vector<dist::Range> parts = {{320, 336}, {160, 320}, {0, 160}};
  for (const int ranks : {1, 2, 3, 4}) {
    const auto slices = split_parts(parts, ranks);
    std::vector<int> owners(336);
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t held = 0, end = -1;
      for (const OwnedPiece& piece : list_owned_pieces(slices, rank, ranks)) {
        EXPECT_EQ(piece.begin, held);
        EXPECT_GT(piece.range.begin, end) << "ascending, and joined where they touch";
        end = piece.range.end;
        held += piece.range.size();
        for (int64_t i = piece.range.begin; i < piece.range.end; ++i)
          ++owners[static_cast<size_t>(i)];
      }
      if (ranks == 1) {
        EXPECT_EQ(held, 336);
      }
    }
    EXPECT_EQ(owners, std::vector<int>(336, 1)) << ranks;
  }
}

}  // namespace
}  // namespace slimexx::train

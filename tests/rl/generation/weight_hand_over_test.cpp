#include "rl/generation/weight_hand_over.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "model/made_up_family.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/rl/rank_roles.h"

namespace slimexx::rl {
namespace {

model::Layout layout_of(int ranks, const dist::GridSizes& sizes) {
  return model::make_layout({model::made_up_parameters()}, dist::GridShape(ranks, sizes));
}

// One rank's trainer and engine, in separate memory.
struct TwoSides {
  TwoSides(dist::Collective& ranks, const dist::GridSizes& trainer, const dist::GridSizes& engine)
      : from(layout_of(ranks.size(), trainer)),
        to(layout_of(ranks.size(), engine)),
        trained(*from.ranks[static_cast<size_t>(ranks.rank())], tensor::Device{}, false),
        served(*to.ranks[static_cast<size_t>(ranks.rank())], tensor::Device{}, false),
        hand_over({from, trained}, {to, served}, plan_hand_over(from, to, ranks), ranks, {}) {
    for (const auto& info : trained.infos())
      trained.write_weights(info, 0, model::made_up_values(info).data(), info.num_elements());
  }
  // Flips one bit of "frozen", which every rank holds.
  void flip_bit() {
    const auto id = served.find("frozen");
    auto* bytes = static_cast<unsigned char*>(served.weight(id).raw());
    bytes[9] ^= 4u;
  }

  model::Layout from, to;
  model::ParameterStore trained, served;
  WeightHandOver hand_over;
};

std::string message_of_check(TwoSides& sides, dist::Collective& ranks) {
  try {
    sides.hand_over.check(ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheck);
    return error.message();
  }
  return "";
}

TEST(WeightHandOver, BringsTheEngineWhatTheTrainerHas) {
  std::map<int, uint64_t> hashes;
  dist::run_thread_ranks(4, [&](dist::Collective& ranks) {
    TwoSides sides(ranks, {.tp = 2, .ep = 2}, {});
    EXPECT_NE(message_of_check(sides, ranks), "");  // nothing was handed over yet
    const model::WeightTraffic traffic = sides.hand_over.move();
    EXPECT_GT(traffic.received, 0);
    for (const auto& info : sides.served.infos())
      EXPECT_EQ(model::values_of(sides.served, info), model::made_up_values(info)) << info.name;
    const uint64_t hash = sides.hand_over.check(ranks);
    if (ranks.rank() == 0) hashes[4] = hash;
  });
  dist::run_thread_ranks(1, [&](dist::Collective& ranks) {
    TwoSides sides(ranks, {}, {});
    sides.hand_over.move();
    hashes[1] = sides.hand_over.check(ranks);
  });
  EXPECT_EQ(hashes[4], hashes[1]) << "of the same model on 4 ranks and on 1";
}

TEST(WeightHandOver, AFlippedBitIsFound) {
  for (const int rank : {0, 2, -1}) {  // rank whose engine is changed; -1: all
    dist::run_thread_ranks(4, [&](dist::Collective& ranks) {
      TwoSides sides(ranks, {.tp = 2}, {});
      sides.hand_over.move();
      if (rank == -1 || rank == ranks.rank()) sides.flip_bit();
      EXPECT_EQ(message_of_check(sides, ranks),
                rank == -1  ? "the engine's weights differ from the trainer's: frozen differs"
                : rank == 0 ? "the engine: ranks 0 and 1 hold different values of frozen"
                            : "the engine: ranks 0 and 2 hold different values of frozen");
      sides.hand_over.move();  // repairs it
      EXPECT_EQ(message_of_check(sides, ranks), "");
    });
  }
}

model::Layout trained_by_two_of_four(const dist::GridSizes& sizes) {
  model::Layout layout = layout_of(2, sizes);
  layout.ranks.resize(4, std::make_shared<const std::vector<model::ParameterInfo>>());
  return layout;
}

// Disaggregated: two ranks train and two generate; each holds weights for its role only.
struct ApartSides {
  ApartSides(dist::Collective& ranks, const dist::GridSizes& trainer, const dist::GridSizes& engine)
      : from(trained_by_two_of_four(trainer)),
        to(spread_served(kRoles, layout_of(2, engine))),
        trained(*from.ranks[index(ranks)], tensor::Device{}, false),
        served(*to.ranks[index(ranks)], tensor::Device{}, false),
        hand_over({from, trained}, {to, served}, plan_hand_over(from, to, ranks), ranks, {}) {
    for (const auto& info : trained.infos())
      trained.write_weights(info, 0, model::made_up_values(info).data(), info.num_elements());
  }
  static size_t index(const dist::Collective& ranks) { return static_cast<size_t>(ranks.rank()); }
  static constexpr RankRoles kRoles{.num_trainers = 2, .num_generators = 2, .are_apart = true};

  model::Layout from, to;
  model::ParameterStore trained, served;
  WeightHandOver hand_over;
};

TEST(WeightHandOver, GoesFromRanksThatTrainToRanksThatGenerate) {
  dist::run_thread_ranks(4, [&](dist::Collective& ranks) {
    ApartSides sides(ranks, {.tp = 2, .ep = 2}, {});
    const bool trains = ranks.rank() < 2;
    const model::WeightTraffic traffic = sides.hand_over.move();
    EXPECT_EQ(traffic.aliased + traffic.copied, 0);
    EXPECT_EQ(trains ? traffic.received : traffic.sent, 0);
    EXPECT_GT(trains ? traffic.sent : traffic.received, 0);
    EXPECT_EQ(sides.trained.infos().empty(), !trains);
    EXPECT_EQ(sides.served.infos().empty(), trains);
    for (const auto& info : sides.served.infos())
      EXPECT_EQ(model::values_of(sides.served, info), model::made_up_values(info)) << info.name;
    sides.hand_over.check(ranks);
  });
}

// Changes one byte of each parameter in turn: all ranks name the tensor.
TEST(WeightHandOver, AFlippedByteIsFoundByTheTensorsName) {
  dist::run_thread_ranks(4, [&](dist::Collective& ranks) {
    ApartSides sides(ranks, {.tp = 2, .ep = 2}, {.tp = 2, .ep = 2});
    sides.hand_over.move();
    const model::ParameterStore whole(model::made_up_parameters(), tensor::Device{}, false);
    for (const auto& info : whole.infos()) {
      if (ranks.rank() == 3) {
        auto* bytes =
            static_cast<unsigned char*>(sides.served.weight(sides.served.find(info.name)).raw());
        bytes[info.id] ^= 0x10u;
      }
      std::string place;
      try {
        sides.hand_over.check(ranks);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCheck);
        EXPECT_NE(error.message().find(error.where()), std::string::npos) << error.what();
        place = error.where();
      }
      bool is_named = false;
      for (const model::HfPart& part : info.parts) is_named |= part.name == place;
      EXPECT_TRUE(is_named) << "a byte of " << info.name << " was flipped, and the check names \""
                            << place << "\"";
      sides.hand_over.move();
      EXPECT_NO_THROW(sides.hand_over.check(ranks)) << info.name;
    }
  });
}

TEST(WeightHandOver, SharedMemoryIsLeftAlone) {
  dist::run_thread_ranks(2, [&](dist::Collective& ranks) {
    TwoSides sides(ranks, {}, {});
    WeightHandOver shared({sides.from, sides.trained}, {sides.from, sides.trained},
                          plan_hand_over(sides.from, sides.from, ranks), ranks, {});
    const model::WeightTraffic traffic = shared.move();
    EXPECT_GT(traffic.aliased, 0);
    EXPECT_EQ(traffic.copied + traffic.sent + traffic.received, 0);
    EXPECT_EQ(message_of_check(sides, ranks) == "", false);
    shared.check(ranks);
  });
}

}  // namespace
}  // namespace slimexx::rl

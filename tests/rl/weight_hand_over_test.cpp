#include "rl/weight_hand_over.h"

#include <gtest/gtest.h>

#include <map>

#include "model/made_up_family.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rl {
namespace {

model::Layout layout_of(int ranks, const dist::GridSizes& sizes) {
  return model::make_layout({model::made_up_parameters()}, dist::GridShape(ranks, sizes));
}

// One rank's trainer and engine, which share no memory.
struct TwoSides {
  TwoSides(dist::Collective& ranks, const dist::GridSizes& trainer, const dist::GridSizes& engine)
      : from(layout_of(ranks.size(), trainer)),
        to(layout_of(ranks.size(), engine)),
        trained(*from.ranks[static_cast<size_t>(ranks.rank())], tensor::Device{}, false),
        served(*to.ranks[static_cast<size_t>(ranks.rank())], tensor::Device{}, false),
        hand_over({from, trained}, {to, served}, ranks, {}) {
    for (const auto& info : trained.infos())
      trained.write_weights(info, 0, model::made_up_values(info).data(), info.num_elements());
  }
  // One bit of one value of "frozen", which every rank holds.
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
  for (const int rank : {0, 2, -1}) {  // of one rank's engine; -1: of all
    dist::run_thread_ranks(4, [&](dist::Collective& ranks) {
      TwoSides sides(ranks, {.tp = 2}, {});
      sides.hand_over.move();
      if (rank == -1 || rank == ranks.rank()) sides.flip_bit();
      EXPECT_EQ(message_of_check(sides, ranks),
                rank == -1  ? "the engine's weights are not the trainer's: frozen differs"
                : rank == 0 ? "the engine: ranks 0 and 1 hold different values of frozen"
                            : "the engine: ranks 0 and 2 hold different values of frozen");
      sides.hand_over.move();  // repairs it
      EXPECT_EQ(message_of_check(sides, ranks), "");
    });
  }
}

TEST(WeightHandOver, SharedMemoryIsLeftAlone) {
  dist::run_thread_ranks(2, [&](dist::Collective& ranks) {
    TwoSides sides(ranks, {}, {});
    WeightHandOver shared({sides.from, sides.trained}, {sides.from, sides.trained}, ranks, {});
    const model::WeightTraffic traffic = shared.move();
    EXPECT_GT(traffic.aliased, 0);
    EXPECT_EQ(traffic.copied + traffic.sent + traffic.received, 0);
    EXPECT_EQ(message_of_check(sides, ranks) == "", false);
    shared.check(ranks);
  });
}

}  // namespace
}  // namespace slimexx::rl

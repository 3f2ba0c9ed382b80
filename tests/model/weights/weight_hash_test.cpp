#include "slimexx/model/weight_hash.h"

#include <gtest/gtest.h>

#include <memory>

#include "model/made_up_family.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

constexpr int kRanks = 8;

// The stores of a layout's ranks, and their hashes.
struct Held {
  explicit Held(const dist::GridSizes& sizes, int64_t num_copies = 0)
      : layout(make_layout({made_up_parameters(num_copies)}, dist::GridShape(kRanks, sizes))) {
    for (const auto& infos : layout.ranks) {
      stores.push_back(std::make_unique<ParameterStore>(*infos, tensor::Device{}, false));
      for (const ParameterInfo& info : stores.back()->infos())
        stores.back()->write_weights(info, 0, made_up_values(info).data(), info.num_elements());
    }
  }
  WeightHashes hash() const {
    std::vector<std::vector<uint64_t>> by_rank;
    for (const auto& store : stores) by_rank.push_back(hash_parts(*store));
    return sum_hashes(layout, by_rank, "the engine");
  }
  // Swaps two values of parameter "o" on one rank.
  void swap_values(size_t rank) {
    const ParameterInfo& o = stores[rank]->infos()[1];
    std::vector<float> values = values_of(*stores[rank], o);
    std::swap(values[0], values[1]);
    stores[rank]->write_weights(o, 0, values.data(), o.num_elements());
  }

  Layout layout;
  std::vector<std::unique_ptr<ParameterStore>> stores;
};

TEST(WeightHash, IsThatOfTheWholeHoweverItIsCut) {
  const WeightHashes expected = Held({}).hash();
  EXPECT_EQ(Held({.tp = 2, .ep = 4, .etp = 2}).hash(), expected);
  EXPECT_EQ(Held({.tp = 2, .ep = 2}).hash(), expected);
  EXPECT_EQ(Held({.ep = 4, .etp = 2}).hash(), expected);
  EXPECT_EQ(Held({.ep = 8}, 11).hash(), expected);
  EXPECT_EQ(Held({.tp = 2, .ep = 4}, 6).hash(), expected);
}

TEST(WeightHash, FindsValuesThatChangedPlaces) {
  Held held({.tp = 2});
  const WeightHashes before = held.hash();
  for (size_t rank = 0; rank < kRanks; rank += 2) held.swap_values(rank);  // all replicas
  const WeightHashes after = held.hash();
  for (const auto& [name, hash] : before) EXPECT_EQ(after.at(name) == hash, name != "o") << name;
  EXPECT_NE(total_hash(after), total_hash(before));
}

TEST(WeightHash, CopiesThatDifferAreNamed) {
  Held held({.tp = 2});
  held.swap_values(4);
  try {
    held.hash();
    FAIL() << "rank 4 holds other values than rank 0";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheck);
    EXPECT_EQ(error.message(), "the engine: ranks 0 and 4 hold different values of o");
  }
}

}  // namespace
}  // namespace slimexx::model

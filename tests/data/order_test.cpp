#include "slimexx/data/order.h"

#include <algorithm>
#include <numeric>

#include "data/data_fixture.h"
#include "data/python_random.h"
#include "test_paths.h"

namespace slimexx::data {
namespace {

constexpr uint64_t kMersenne61 = (uint64_t{1} << 61) - 1;

TEST(PythonRandom, DrawsWhatPythonDraws) {
  for (const Json& row : read_json_lines(test_data_path("data/python_bits.jsonl"))) {
    PythonRandom random(row.at("seed").get<int64_t>());
    for (size_t i = 0; i < row.at("bits").size(); ++i) {
      EXPECT_EQ(std::to_string(random.next_bits(row["bits"][i].get<int>())),
                row.at("values")[i].get<std::string>())
          << "seed " << row["seed"] << " draw " << i;
    }
  }
}

TEST(PythonRandom, StaysBelowTheBound) {
  PythonRandom random(3);
  for (const uint64_t bound : {uint64_t{1}, uint64_t{2}, uint64_t{3}, uint64_t{1} << 32,
                               (uint64_t{1} << 40) + 1, UINT64_MAX}) {
    for (int i = 0; i < 100; ++i) ASSERT_LT(random.next_below(bound), bound);
  }
}

TEST(PythonShuffle, PermutesAsPythonDoes) {
  const auto rows = read_json_lines(test_data_path("data/python_shuffle.jsonl"));
  ASSERT_GT(rows.size(), 60u);
  for (const Json& row : rows) {
    const int64_t seed = row.at("seed"), n = row.at("n");
    const auto permutation = python_shuffle(n, seed);
    if (row.contains("permutation")) {
      EXPECT_EQ(Json(permutation), row["permutation"]) << "seed " << seed << " n " << n;
      continue;
    }
    EXPECT_EQ(Json(std::vector<int64_t>(permutation.begin(), permutation.begin() + 16)),
              row["first"]);
    uint64_t sum = 0;
    for (size_t i = 0; i < permutation.size(); ++i) {
      sum = (sum + (i + 1) * static_cast<uint64_t>(permutation[i])) % kMersenne61;
    }
    EXPECT_EQ(sum, row.at("weighted_sum").get<uint64_t>()) << "seed " << seed << " n " << n;
  }
}

TEST(PythonShuffle, AgreesWithTheScheduleVectors) {
  const std::string path = test_data_path("golden/grading/schedule_vectors.json");
  const Json vectors = parse_json_file(path);
  for (const Json& row : vectors.at("shuffle")) {
    auto permutation = python_shuffle(row.at("n"), row.at("seed"));
    permutation.resize(row.at("perm").size());
    EXPECT_EQ(Json(permutation), row["perm"]);
  }
}

TEST(EpochOrder, TakesTheRestThenTheNextEpoch) {
  EpochOrder order(10, true, 42, "h");
  EXPECT_EQ(order.draw(8), (std::vector<int64_t>{7, 3, 2, 8, 5, 6, 9, 4}));
  EXPECT_EQ(order.cursor().epoch, 0);
  EXPECT_EQ(order.draw(5), (std::vector<int64_t>{0, 1, 8, 1, 5}));
  EXPECT_EQ(order.cursor().epoch, 1);
  EXPECT_EQ(order.cursor().offset, 3);
  EXPECT_EQ(order.draw(7), (std::vector<int64_t>{6, 9, 7, 3, 2, 4, 0}));
  EXPECT_EQ(order.cursor().epoch, 1) << "the next epoch begins with the next draw";
  EXPECT_EQ(order.cursor().offset, 10);
  EXPECT_TRUE(order.draw(0).empty());
  EXPECT_EQ(order.cursor().epoch, 1);
}

TEST(EpochOrder, DrawsMoreThanAnEpochAtOnce) {
  for (const bool shuffle : {false, true}) {
    EpochOrder one(3, shuffle, 5, ""), many(3, shuffle, 5, "");
    const auto all = one.draw(11);
    std::vector<int64_t> pieces;
    for (int i = 0; i < 11; ++i) pieces.push_back(many.draw(1).at(0));
    EXPECT_EQ(all, pieces);
    EXPECT_EQ(one.cursor().epoch, 3);
    EXPECT_EQ(one.cursor().offset, 2);
    for (int epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> rows(all.begin() + 3 * epoch, all.begin() + 3 * epoch + 3);
      std::sort(rows.begin(), rows.end());
      EXPECT_EQ(rows, (std::vector<int64_t>{0, 1, 2})) << epoch;
    }
  }
}

TEST(EpochOrder, GoesOnWhereTheCursorStands) {
  for (int64_t drawn = 0; drawn <= 25; ++drawn) {
    EpochOrder order(10, true, 7, "h");
    order.draw(drawn);
    const Cursor saved = order.cursor();
    EXPECT_EQ(saved.num_drawn(), drawn);
    EpochOrder resumed(10, true, 7, "h");
    resumed.draw(13);
    resumed.restore(saved);
    EXPECT_EQ(resumed.draw(17), order.draw(17)) << drawn;
  }
}

TEST(EpochOrder, RefusesACursorOfOtherData) {
  EpochOrder order(10, true, 7, "h");
  const auto refused = [&](auto change) {
    Cursor cursor = EpochOrder(10, true, 7, "h").cursor();
    change(cursor);
    try {
      order.restore(cursor);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      EXPECT_FALSE(error.hint().empty());
    }
  };
  refused([](Cursor& c) { c.num_rows = 11; });
  refused([](Cursor& c) { c.content_hash = "g"; });
  refused([](Cursor& c) { c.seed = 8; });
  refused([](Cursor& c) { c.shuffle = false; });
  refused([](Cursor& c) { c.offset = 11; });
  refused([](Cursor& c) { c.offset = -1; });
  refused([](Cursor& c) { c.epoch = -1; });
  refused([](Cursor& c) { c.epoch = INT64_MAX / 10; });
  EXPECT_EQ(order.draw(1), EpochOrder(10, true, 7, "h").draw(1)) << "a refusal changes nothing";
}

}  // namespace
}  // namespace slimexx::data

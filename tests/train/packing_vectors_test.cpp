// Checks first-fit and Karmarkar-Karp against slime's test vectors. Slime's vectors for whole
// schedules do not apply: slime rounds the number of microbatches to a multiple of the ranks, while
// here the number of ranks only affects the assignment.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "slimexx/base/json.h"
#include "slimexx/train/packing.h"
#include "test_paths.h"

namespace slimexx::train {
namespace {

Json read_vectors() {
  return parse_json_file(test_data_path("golden/grading/schedule_vectors.json"));
}

TEST(PackingVectors, FirstFit) {
  const Json vectors = read_vectors();
  for (const Json& row : vectors.at("first_fit")) {
    EXPECT_EQ(pack_first_fit(row["lengths"].get<std::vector<int64_t>>(), row["cap"].get<int64_t>()),
              row["bins"].get<Bins>())
        << row.dump();
  }
}

TEST(PackingVectors, KarmarkarKarp) {
  const Json vectors = read_vectors();
  for (const Json& row : vectors.at("karmarkar_karp")) {
    EXPECT_EQ(partition_karmarkar_karp(row["lengths"].get<std::vector<double>>(),
                                       row["k"].get<int64_t>(), row["equal_size"].get<bool>()),
              row["sorted"].get<Bins>())
        << row.dump();
  }
}

// Expected results worked out by hand with the algorithm's rules.
TEST(PackingVectors, SmallOnes) {
  EXPECT_EQ(pack_first_fit(std::vector<int64_t>{9, 1, 8, 2, 7, 3}, 10),
            (Bins{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(pack_first_fit(std::vector<int64_t>{15, 3, 3, 3, 3, 3, 3, 3}, 10),
            (Bins{{0}, {1, 2, 3}, {4, 5, 6}, {7}}));
  // Differencing 8 7 6 5 4: 8-7, 6-5, 4 against the rest: {7, 5, 4} and {8, 6}.
  EXPECT_EQ(partition_karmarkar_karp(std::vector<double>{4, 5, 6, 7, 8}, 2, false),
            (Bins{{0, 1, 3}, {2, 4}}));
  EXPECT_EQ(partition_karmarkar_karp({}, 3, false), (Bins{{}, {}, {}}));
  EXPECT_EQ(partition_karmarkar_karp(std::vector<double>{5}, 3, false).size(), 3u);
}

}  // namespace
}  // namespace slimexx::train

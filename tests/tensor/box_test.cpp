#include "slimexx/tensor/box.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "slimexx/base/philox.h"

namespace slimexx::tensor {
namespace {

std::vector<int64_t> random_shape(PhiloxStream& random, size_t dims) {
  std::vector<int64_t> shape;
  for (size_t d = 0; d < dims; ++d) shape.push_back(1 + static_cast<int64_t>(random.next_below(6)));
  return shape;
}

// Flat indices of a tensor's elements inside a box, ascending.
std::vector<int64_t> indices_of(const std::vector<int64_t>& shape, const Box& box) {
  const auto strides = strides_of(shape);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count_elements(whole_box(shape)); ++i) {
    bool inside = true;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t at = i / strides[d] % shape[d];
      inside &= at >= box.begin[d] && at < box.end[d];
    }
    if (inside) indices.push_back(i);
  }
  return indices;
}

TEST(Box, RangesSplitIntoFewBoxesInOrder) {
  PhiloxStream random(3, 1);
  for (int round = 0; round < 300; ++round) {
    const auto shape = random_shape(random, 1 + random.next_below(4));
    const int64_t n = count_elements(whole_box(shape));
    const auto begin = static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n)));
    const auto end =
        begin + static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n - begin + 1)));
    const auto boxes = split_range(shape, begin, end);
    EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
    std::vector<int64_t> seen, expected;
    for (const Box& box : boxes)
      for (const int64_t i : indices_of(shape, box)) seen.push_back(i);
    for (int64_t i = begin; i < end; ++i) expected.push_back(i);
    ASSERT_EQ(seen, expected) << "round " << round;
  }
}

TEST(Box, IntersectionsAndRunsAreThoseOfTheElements) {
  PhiloxStream random(3, 2);
  const auto random_box = [&](const std::vector<int64_t>& shape) {
    Box box;
    for (const int64_t n : shape) {
      box.begin.push_back(static_cast<int64_t>(random.next_below(static_cast<uint64_t>(n))));
      box.end.push_back(box.begin.back() + static_cast<int64_t>(random.next_below(
                                               static_cast<uint64_t>(n - box.begin.back() + 1))));
    }
    return box;
  };
  for (int round = 0; round < 300; ++round) {
    const auto shape = random_shape(random, 1 + random.next_below(3));
    const Box a = random_box(shape), b = random_box(shape), both = intersect(a, b);
    EXPECT_EQ(overlap(a, b), count_elements(both) > 0);
    std::vector<int64_t> expected;
    const auto in_a = indices_of(shape, a), in_b = indices_of(shape, b);
    std::ranges::set_intersection(in_a, in_b, std::back_inserter(expected));
    ASSERT_EQ(indices_of(shape, both), expected) << "round " << round;
    // Copies the box out of the tensor into a dense tensor of its shape.
    const auto extents = extents_of(both);
    std::vector<int64_t> copied;
    int64_t origin = 0;
    for (size_t d = 0; d < shape.size(); ++d) origin += both.begin[d] * strides_of(shape)[d];
    int64_t to = 0;
    for (const BoxRun& run : list_runs(extents, strides_of(shape), strides_of(extents))) {
      EXPECT_EQ(run.to, to);
      to += run.size;
      for (int64_t i = 0; i < run.size; ++i) copied.push_back(origin + run.from + i);
    }
    ASSERT_EQ(copied, expected) << "round " << round;
  }
  // Whole rows form one run; columns form one run per row.
  EXPECT_EQ(list_runs({4, 8}, {8, 1}, {8, 1}).size(), 1u);
  EXPECT_EQ(list_runs({4, 8}, {16, 1}, {8, 1}).size(), 4u);
}

TEST(Box, ACoverHasEveryElementOnce) {
  const std::vector<int64_t> shape = {4, 6};
  const Box left{{0, 0}, {4, 2}}, top{{0, 2}, {1, 6}}, rest{{1, 2}, {4, 6}};
  EXPECT_TRUE(cover_exactly(shape, {rest, left, top}));
  EXPECT_FALSE(cover_exactly(shape, {rest, left}));
  // The right number of elements, but some are covered twice and some not at all.
  EXPECT_FALSE(cover_exactly(shape, {rest, left, {{1, 2}, {2, 6}}}));
  EXPECT_FALSE(cover_exactly(shape, {rest, left, {{0, 3}, {1, 7}}}));
  EXPECT_TRUE(cover_exactly({}, {Box{}}));
  EXPECT_TRUE(cover_exactly({0, 3}, {}));
}

TEST(Box, ColumnsAreRowsAtOneDistance) {
  const auto columns = list_rows({4, 8}, {16, 1}, {8, 1});
  ASSERT_EQ(columns.size(), 1u);
  EXPECT_EQ(columns[0].rows, 4);
  EXPECT_EQ(columns[0].first.size, 8);
  EXPECT_EQ(columns[0].from_stride, 16);
  EXPECT_EQ(columns[0].to_stride, 8);
  const auto whole = list_rows({4, 8}, {8, 1}, {8, 1});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].rows, 1);
  EXPECT_EQ(whole[0].first.size, 32);
  const auto slabs = list_rows({3, 4, 8}, {1000, 16, 1}, {500, 9, 1});
  ASSERT_EQ(slabs.size(), 3u);
  EXPECT_EQ(slabs[2].first.from, 2000);
  EXPECT_EQ(slabs[2].first.to, 1000);
  EXPECT_EQ(slabs[2].rows, 4);
  EXPECT_TRUE(list_rows({4, 0}, {16, 1}, {8, 1}).empty());
}

}  // namespace
}  // namespace slimexx::tensor

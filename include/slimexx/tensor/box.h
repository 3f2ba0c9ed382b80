// Boxes of the elements of a row-major tensor.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::tensor {

// Of every dimension the indices [begin, end). Without dimensions it is one element.
struct Box {
  std::vector<int64_t> begin, end;
  bool operator==(const Box&) const = default;
};

Box whole_box(const std::vector<int64_t>& shape);
int64_t count_elements(const Box& box);
std::vector<int64_t> extents_of(const Box& box);
// Elements from one index of a row-major tensor to the next, by dimension.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape);
// Whether two boxes with as many dimensions share an element.
bool overlap(const Box& a, const Box& b);
// What they share; a box without elements where that is nothing.
Box intersect(const Box& a, const Box& b);
// Elements [begin, end) of the flattened tensor as boxes, in order: at most twice as many as there
// are dimensions, less one.
std::vector<Box> split_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);
// Whether the boxes cover the tensor, each element once. Takes time in n * (1 + the most boxes that
// share an index of dimension 0).
bool cover_exactly(const std::vector<int64_t>& shape, const std::vector<Box>& boxes);

// Elements that are neighbours in two places: where they begin in either, and how many.
struct BoxRun {
  int64_t from = 0, to = 0, size = 0;
};
// The elements of a box of `extents`, in row-major order, between two places with a stride for each
// dimension; as few runs as can be.
std::vector<BoxRun> list_runs(const std::vector<int64_t>& extents,
                              const std::vector<int64_t>& from_strides,
                              const std::vector<int64_t>& to_strides);

// The same as runs at equal distances, which one strided copy takes: columns of a matrix are one.
struct BoxRows {
  BoxRun first;
  int64_t rows = 1, from_stride = 0, to_stride = 0;  // from one run to the next
};
std::vector<BoxRows> list_rows(const std::vector<int64_t>& extents,
                               const std::vector<int64_t>& from_strides,
                               const std::vector<int64_t>& to_strides);

}  // namespace slimexx::tensor

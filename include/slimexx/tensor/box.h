// Boxes (hyperrectangles) of elements of a row-major tensor.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::tensor {

// Indices [begin, end) in every dimension. A box without dimensions is one element.
struct Box {
  std::vector<int64_t> begin, end;
  bool operator==(const Box&) const = default;
};

Box whole_box(const std::vector<int64_t>& shape);
int64_t count_elements(const Box& box);
std::vector<int64_t> extents_of(const Box& box);
// Row-major strides in elements, by dimension.
std::vector<int64_t> strides_of(const std::vector<int64_t>& shape);
// Whether two boxes share an element; they must have the same number of dimensions.
bool overlap(const Box& a, const Box& b);
// The common elements of two boxes; an empty box if there are none.
Box intersect(const Box& a, const Box& b);
// Elements [begin, end) of the flattened tensor as boxes, in order: at most 2 d - 1 boxes for d
// dimensions.
std::vector<Box> split_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end);
// Whether the boxes cover each element of the tensor exactly once. Takes O(n (1 + m)) time for n
// boxes, if at most m of them share an index of dimension 0.
bool cover_exactly(const std::vector<int64_t>& shape, const std::vector<Box>& boxes);

// A run of elements that is contiguous in both the source and the destination: its offsets and its
// length.
struct BoxRun {
  int64_t from = 0, to = 0, size = 0;
};
// Runs that copy a box of `extents`, in row-major order, between two layouts given by their
// strides; as few runs as possible.
std::vector<BoxRun> list_runs(const std::vector<int64_t>& extents,
                              const std::vector<int64_t>& from_strides,
                              const std::vector<int64_t>& to_strides);

// Runs at equal distances, which one strided copy can take: for example, columns of a matrix.
struct BoxRows {
  BoxRun first;
  int64_t rows = 1, from_stride = 0, to_stride = 0;  // strides: from one run to the next
};
std::vector<BoxRows> list_rows(const std::vector<int64_t>& extents,
                               const std::vector<int64_t>& from_strides,
                               const std::vector<int64_t>& to_strides);

}  // namespace slimexx::tensor

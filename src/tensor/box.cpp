#include "slimexx/tensor/box.h"

#include <algorithm>
#include <utility>

#include "slimexx/base/check.h"

namespace slimexx::tensor {
namespace {

void append_run(std::vector<BoxRun>& runs, const BoxRun& run) {
  if (!runs.empty() && runs.back().from + runs.back().size == run.from &&
      runs.back().to + runs.back().size == run.to) {
    runs.back().size += run.size;
  } else {
    runs.push_back(run);
  }
}

void split_dimension(const std::vector<int64_t>& strides, size_t d, Box& box, int64_t begin,
                     int64_t end, std::vector<Box>& boxes) {
  // Splits elements [begin, end) of the subtensor of dimensions d and later; earlier ones are set
  // in `box`.
  if (begin >= end) return;
  const int64_t stride = strides[d], first = begin / stride, last = (end - 1) / stride;
  const auto add_rows = [&](int64_t from, int64_t to) {
    if (from >= to) return;
    box.begin[d] = from, box.end[d] = to;
    for (size_t inner = d + 1; inner < strides.size(); ++inner)
      box.begin[inner] = 0, box.end[inner] = strides[inner - 1] / strides[inner];
    boxes.push_back(box);
  };
  const auto add_piece = [&](int64_t row, int64_t from, int64_t to) {
    if (from == 0 && to == stride) return add_rows(row, row + 1);
    box.begin[d] = row, box.end[d] = row + 1;
    split_dimension(strides, d + 1, box, from, to, boxes);
  };
  if (first == last) return add_piece(first, begin - first * stride, end - first * stride);
  const int64_t whole_from = begin % stride == 0 ? first : first + 1;
  const int64_t whole_to = end % stride == 0 ? last + 1 : last;
  if (whole_from > first) add_piece(first, begin - first * stride, stride);
  add_rows(whole_from, whole_to);
  if (whole_to == last) add_piece(last, 0, end - last * stride);
}

}  // namespace

Box whole_box(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

int64_t count_elements(const Box& box) {
  int64_t n = 1;
  for (size_t d = 0; d < box.begin.size(); ++d)
    n *= std::max<int64_t>(0, box.end[d] - box.begin[d]);
  return n;
}

std::vector<int64_t> extents_of(const Box& box) {
  std::vector<int64_t> extents;
  for (size_t d = 0; d < box.begin.size(); ++d) extents.push_back(box.end[d] - box.begin[d]);
  return extents;
}

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

bool overlap(const Box& a, const Box& b) {
  SLX_CHECK_EQ(a.begin.size(), b.begin.size());
  for (size_t d = 0; d < a.begin.size(); ++d)
    if (std::max(a.begin[d], b.begin[d]) >= std::min(a.end[d], b.end[d])) return false;
  return true;
}
Box intersect(const Box& a, const Box& b) {
  SLX_CHECK_EQ(a.begin.size(), b.begin.size());
  Box both;
  for (size_t d = 0; d < a.begin.size(); ++d) {
    both.begin.push_back(std::max(a.begin[d], b.begin[d]));
    both.end.push_back(std::max(both.begin[d], std::min(a.end[d], b.end[d])));
  }
  return both;
}

std::vector<Box> split_range(const std::vector<int64_t>& shape, int64_t begin, int64_t end) {
  if (shape.empty()) return begin < end ? std::vector<Box>{Box{}} : std::vector<Box>{};
  std::vector<Box> boxes;
  Box box = whole_box(shape);
  split_dimension(strides_of(shape), 0, box, begin, end, boxes);
  return boxes;
}

bool cover_exactly(const std::vector<int64_t>& shape, const std::vector<Box>& boxes) {
  const Box whole = whole_box(shape);
  __int128 covered = 0;
  for (const Box& box : boxes) {
    if (box.begin.size() != shape.size() || intersect(box, whole) != box) return false;
    covered += count_elements(box);
  }
  if (covered != count_elements(whole)) return false;
  if (shape.empty()) return true;
  // The boxes have as many elements as the tensor, so they cover it if no two boxes overlap.
  std::vector<const Box*> sorted, open;
  for (const Box& box : boxes)
    if (count_elements(box) > 0) sorted.push_back(&box);
  std::ranges::sort(sorted, {}, [](const Box* box) { return box->begin[0]; });
  for (const Box* box : sorted) {
    std::erase_if(open, [&](const Box* earlier) { return earlier->end[0] <= box->begin[0]; });
    for (const Box* earlier : open)
      if (overlap(*earlier, *box)) return false;
    open.push_back(box);
  }
  return true;
}

std::vector<BoxRows> list_rows(const std::vector<int64_t>& extents,
                               const std::vector<int64_t>& from_strides,
                               const std::vector<int64_t>& to_strides) {
  std::vector<BoxRows> list;
  if (std::ranges::any_of(extents, [](int64_t n) { return n <= 0; })) return list;
  // Merges dimensions that are contiguous in both layouts into one run.
  size_t dims = extents.size();
  BoxRows next{.first = {0, 0, 1}};
  while (dims > 0 && from_strides[dims - 1] == next.first.size &&
         to_strides[dims - 1] == next.first.size)
    next.first.size *= extents[--dims];
  if (dims > 0) {
    --dims;
    next.rows = extents[dims];
    next.from_stride = from_strides[dims];
    next.to_stride = to_strides[dims];
  }
  std::vector<int64_t> index(dims, 0);
  for (;;) {
    list.push_back(next);
    size_t d = dims;
    while (d > 0) {
      --d;
      next.first.from += from_strides[d], next.first.to += to_strides[d];
      if (++index[d] < extents[d]) break;
      next.first.from -= extents[d] * from_strides[d], next.first.to -= extents[d] * to_strides[d];
      index[d] = 0;
      if (d == 0) return list;
    }
    if (dims == 0) return list;
  }
}

std::vector<BoxRun> list_runs(const std::vector<int64_t>& extents,
                              const std::vector<int64_t>& from_strides,
                              const std::vector<int64_t>& to_strides) {
  std::vector<BoxRun> runs;
  for (const BoxRows& rows : list_rows(extents, from_strides, to_strides))
    for (int64_t r = 0; r < rows.rows; ++r)
      append_run(runs, {rows.first.from + r * rows.from_stride, rows.first.to + r * rows.to_stride,
                        rows.first.size});
  return runs;
}

}  // namespace slimexx::tensor

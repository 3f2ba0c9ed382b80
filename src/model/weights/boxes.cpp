#include "slimexx/model/boxes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "slimexx/base/check.h"
#include "slimexx/dist/ranges.h"

namespace slimexx::model {
namespace {

// The dimension to which row_step applies: the second to last.
size_t row_dimension(const HfPart& part) { return part.size.size() < 2 ? 0 : part.size.size() - 2; }

}  // namespace

dist::Range find_indices(const HfPart& part, size_t dimension, int64_t at, dist::Range between) {
  const int64_t step = row_step_of(part, dimension), size = part.size[dimension];
  const auto count_before = [&](int64_t index) {
    return index <= at ? 0 : std::min(size, (index - at + step - 1) / step);
  };
  return {count_before(between.begin), count_before(between.end)};
}

int64_t row_step_of(const HfPart& part, size_t dimension) {
  return dimension == row_dimension(part) ? part.row_step : 1;
}

void complete_parts(ParameterInfo& info) {
  const size_t rank = info.shape.size();
  SLX_CHECK(rank >= 1 && rank <= 3, "{} has {} dimensions, but must have 1 to 3", info.name, rank);
  int64_t covered = 0;
  for (HfPart& part : info.parts) {
    if (part.at.empty()) part.at.assign(rank, 0);
    if (part.begin.empty()) part.begin.assign(part.shape.size(), 0);
    if (part.size.empty()) part.size = part.shape;
    const size_t dims = part.size.size();
    SLX_CHECK(dims >= 1 && dims <= rank && part.shape.size() == dims && part.begin.size() == dims &&
                  part.at.size() == rank && part.row_step >= 1,
              "a part of tensor {} in {} has the wrong number of dimensions", part.name, info.name);
    int64_t n = 1;
    for (size_t d = 0; d < rank; ++d) {
      const bool is_boxed = d >= rank - dims;
      const size_t b = is_boxed ? d - (rank - dims) : 0;
      const int64_t size = is_boxed ? part.size[b] : 1;
      const int64_t step = is_boxed ? row_step_of(part, b) : 1;
      SLX_CHECK(size > 0 && part.at[d] >= 0 && part.at[d] + (size - 1) * step < info.shape[d],
                "a part of tensor {} exceeds parameter {}", part.name, info.name);
      if (is_boxed)
        SLX_CHECK(part.begin[b] >= 0 && part.begin[b] + size <= part.shape[b],
                  "a part exceeds tensor {} (parameter {})", part.name, info.name);
      n *= size;
    }
    covered += n;
  }
  SLX_CHECK_EQ(covered, info.num_elements());
}

std::vector<PartBox> list_boxes(const ParameterInfo& info, int64_t begin, int64_t end) {
  std::vector<PartBox> boxes;
  const std::vector<int64_t> strides = tensor::strides_of(info.shape);
  const std::vector<tensor::Box> pieces = tensor::split_range(info.shape, begin, end);
  for (size_t p = 0; p < info.parts.size(); ++p) {
    const HfPart& part = info.parts[p];
    const size_t leading = info.shape.size() - part.size.size();
    for (const tensor::Box& piece : pieces) {
      PartBox box{.part = p};
      bool meets = true;
      for (size_t d = 0; d < info.shape.size() && meets; ++d) {
        const bool is_boxed = d >= leading;
        const size_t b = is_boxed ? d - leading : 0;
        const dist::Range between{piece.begin[d], piece.end[d]};
        dist::Range held{0, part.at[d] >= between.begin && part.at[d] < between.end ? 1 : 0};
        if (is_boxed) held = find_indices(part, b, part.at[d], between);
        const int64_t step = is_boxed ? row_step_of(part, b) : 1;
        meets = held.size() > 0;
        box.in_parameter += (part.at[d] + held.begin * step) * strides[d];
        if (!is_boxed) continue;
        box.on_disk.begin.push_back(part.begin[b] + held.begin);
        box.on_disk.end.push_back(part.begin[b] + held.end);
        box.strides.push_back(strides[d] * step);
      }
      if (meets) boxes.push_back(std::move(box));
    }
  }
  return boxes;
}

std::vector<PartBox> list_boxes(const ParameterInfo& info) {
  return list_boxes(info, 0, info.num_elements());
}

std::vector<ElementRun> list_runs(const ParameterInfo& info, int64_t begin, int64_t end) {
  std::vector<ElementRun> runs;
  for (const PartBox& box : list_boxes(info, begin, end)) {
    const std::vector<int64_t> disk = tensor::strides_of(info.parts[box.part].shape);
    int64_t first = 0;
    for (size_t d = 0; d < disk.size(); ++d) first += box.on_disk.begin[d] * disk[d];
    for (const auto& run : tensor::list_runs(tensor::extents_of(box.on_disk), disk, box.strides))
      runs.push_back({box.in_parameter + run.to, first + run.from, run.size, box.part});
  }
  std::ranges::sort(runs, {}, &ElementRun::in_parameter);
  std::vector<ElementRun> joined;
  for (const ElementRun& run : runs) {
    ElementRun* last = joined.empty() ? nullptr : &joined.back();
    if (last != nullptr && last->part == run.part &&
        last->in_parameter + last->size == run.in_parameter &&
        last->on_disk + last->size == run.on_disk) {
      last->size += run.size;
    } else {
      joined.push_back(run);
    }
  }
  return joined;
}

std::vector<ElementRun> list_runs(const ParameterInfo& info) {
  return list_runs(info, 0, info.num_elements());
}

std::vector<dist::Range> list_copied_ranges(const ParameterInfo& info) {
  std::vector<dist::Range> ranges;
  if (std::ranges::all_of(info.parts, &HfPart::is_counted)) return ranges;
  for (const ElementRun& run : list_runs(info)) {
    if (info.parts[run.part].is_counted) continue;
    const int64_t end = run.in_parameter + run.size;
    if (!ranges.empty() && ranges.back().end == run.in_parameter)
      ranges.back().end = end;
    else
      ranges.push_back({run.in_parameter, end});
  }
  return ranges;
}

std::vector<TensorSource> list_tensor_sources(const std::vector<ParameterInfo>& infos) {
  std::vector<TensorSource> tensors;
  std::unordered_map<std::string_view, size_t> index;  // by names of infos
  for (const ParameterInfo& info : infos) {
    for (const ElementRun& run : list_runs(info)) {
      const HfPart& part = info.parts[run.part];
      const auto [it, is_new] = index.emplace(part.name, tensors.size());
      if (is_new)
        tensors.push_back({.name = part.name,
                           .shape = part.shape,
                           .dtype = part.dtype ? part.dtype : info.dtype});
      tensors[it->second].pieces.push_back({run.on_disk, run.size, info.id, run.in_parameter});
    }
  }
  for (TensorSource& tensor : tensors)
    std::ranges::sort(tensor.pieces, {}, &TensorSource::Piece::on_disk);
  return tensors;
}

}  // namespace slimexx::model

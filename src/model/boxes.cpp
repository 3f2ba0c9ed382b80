#include "slimexx/model/boxes.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "slimexx/base/check.h"

namespace slimexx::model {
namespace {

std::vector<int64_t> strides_of(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// The dimension of a box whose neighbours are row_step apart: its rows.
size_t row_dimension(const HfPart& part) { return part.size.size() < 2 ? 0 : part.size.size() - 2; }

void append_run(std::vector<ElementRun>& runs, const ElementRun& run) {
  if (!runs.empty()) {
    ElementRun& last = runs.back();
    if (last.part == run.part && last.in_parameter + last.size == run.in_parameter &&
        last.on_disk + last.size == run.on_disk) {
      last.size += run.size;
      return;
    }
  }
  runs.push_back(run);
}

// The runs of one part, in the order of its elements on disk.
void append_runs(std::vector<ElementRun>& runs, const ParameterInfo& info, size_t index) {
  const HfPart& part = info.parts[index];
  const size_t dims = part.size.size(), more = info.shape.size() - dims;
  const std::vector<int64_t> disk = strides_of(part.shape);
  std::vector<int64_t> own = strides_of(info.shape);
  ElementRun run{.part = index};
  for (size_t d = 0; d < info.shape.size(); ++d) run.in_parameter += part.at[d] * own[d];
  for (size_t d = 0; d < dims; ++d) run.on_disk += part.begin[d] * disk[d];
  own.erase(own.begin(), own.begin() + static_cast<int64_t>(more));
  own[row_dimension(part)] *= part.row_step;
  const bool is_contiguous = own.back() == 1;
  run.size = is_contiguous ? part.size.back() : 1;
  const int64_t outer[3] = {dims > 2 ? part.size[0] : 1, dims > 1 ? part.size[dims - 2] : 1,
                            is_contiguous ? 1 : part.size.back()};
  for (int64_t i = 0; i < outer[0]; ++i) {
    for (int64_t j = 0; j < outer[1]; ++j) {
      for (int64_t k = 0; k < outer[2]; ++k) {
        ElementRun next = run;
        if (dims > 2) next.in_parameter += i * own[0], next.on_disk += i * disk[0];
        if (dims > 1) next.in_parameter += j * own[dims - 2], next.on_disk += j * disk[dims - 2];
        next.in_parameter += k * own[dims - 1];
        next.on_disk += k;
        append_run(runs, next);
      }
    }
  }
}

}  // namespace

void complete_parts(ParameterInfo& info) {
  const size_t rank = info.shape.size();
  SLX_CHECK(rank >= 1 && rank <= 3, "{} has {} dimensions", info.name, rank);
  int64_t covered = 0;
  for (HfPart& part : info.parts) {
    if (part.at.empty()) part.at.assign(rank, 0);
    if (part.begin.empty()) part.begin.assign(part.shape.size(), 0);
    if (part.size.empty()) part.size = part.shape;
    const size_t dims = part.size.size();
    SLX_CHECK(dims >= 1 && dims <= rank && part.shape.size() == dims && part.begin.size() == dims &&
                  part.at.size() == rank && part.row_step >= 1,
              "{} of {}", part.name, info.name);
    int64_t n = 1;
    for (size_t d = 0; d < rank; ++d) {
      const bool is_boxed = d >= rank - dims;
      const size_t b = is_boxed ? d - (rank - dims) : 0;
      const int64_t size = is_boxed ? part.size[b] : 1;
      const int64_t step = is_boxed && b == row_dimension(part) ? part.row_step : 1;
      SLX_CHECK(size > 0 && part.at[d] >= 0 && part.at[d] + (size - 1) * step < info.shape[d],
                "{} of {}", part.name, info.name);
      if (is_boxed)
        SLX_CHECK(part.begin[b] >= 0 && part.begin[b] + size <= part.shape[b], "{} of {}",
                  part.name, info.name);
      n *= size;
    }
    covered += n;
  }
  SLX_CHECK_EQ(covered, info.num_elements());
}

std::vector<ElementRun> list_runs(const ParameterInfo& info) {
  std::vector<ElementRun> runs;
  for (size_t p = 0; p < info.parts.size(); ++p) append_runs(runs, info, p);
  std::ranges::sort(runs, {}, &ElementRun::in_parameter);
  return runs;
}

std::vector<ElementRun> list_runs(const ParameterInfo& info, int64_t begin, int64_t end) {
  std::vector<ElementRun> cut;
  for (ElementRun run : list_runs(info)) {
    const int64_t first = std::max(begin, run.in_parameter);
    const int64_t last = std::min(end, run.in_parameter + run.size);
    if (first >= last) continue;
    run.on_disk += first - run.in_parameter;
    run.in_parameter = first;
    run.size = last - first;
    cut.push_back(run);
  }
  return cut;
}

std::vector<TensorSource> list_tensor_sources(const std::vector<ParameterInfo>& infos) {
  std::vector<TensorSource> tensors;
  std::unordered_map<std::string_view, size_t> index;  // by names of infos
  for (const ParameterInfo& info : infos) {
    for (const ElementRun& run : list_runs(info)) {
      const HfPart& part = info.parts[run.part];
      const auto [it, is_new] = index.emplace(part.name, tensors.size());
      if (is_new) tensors.push_back({.name = part.name, .shape = part.shape});
      tensors[it->second].pieces.push_back({run.on_disk, run.size, info.id, run.in_parameter});
    }
  }
  for (TensorSource& tensor : tensors)
    std::ranges::sort(tensor.pieces, {}, &TensorSource::Piece::on_disk);
  return tensors;
}

void read_tensor(const ParameterStore& store, const TensorSource& tensor, int64_t begin,
                 int64_t end, float* values) {
  const auto ends_at = [](const TensorSource::Piece& piece) { return piece.on_disk + piece.size; };
  auto piece = std::ranges::upper_bound(tensor.pieces, begin, {}, ends_at);
  for (int64_t at = begin; at < end; ++piece) {
    SLX_CHECK(piece != tensor.pieces.end() && piece->on_disk <= at, "{} at {}", tensor.name, at);
    const int64_t stop = std::min(end, ends_at(*piece));
    store.read_weights(store.infos()[static_cast<size_t>(piece->parameter)],
                       piece->in_parameter + at - piece->on_disk, values + (at - begin), stop - at);
    at = stop;
  }
}

}  // namespace slimexx::model

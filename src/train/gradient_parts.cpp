#include "slimexx/train/gradient_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/check.h"
#include "slimexx/model/spec.h"

namespace slimexx::train {

std::vector<GradientPart> list_gradient_parts(const model::ParameterStore& store,
                                              const model::ModelSpec& spec, int64_t min_elements) {
  const auto find_offset = [&](const std::string& name) {
    for (const auto& info : store.infos())
      if (info.name == name) return info.offset;
    SLX_CHECK(false, "no parameter {}", name);
    return int64_t{0};
  };
  std::vector<GradientPart> parts;
  int64_t end = store.num_elements();
  const auto finish_stage = [&](int64_t stage, int64_t begin) {
    const bool is_last = begin == 0;
    if (!is_last && end - begin < min_elements) return;
    parts.push_back({{begin, end}, stage});
    end = begin;
  };
  finish_stage(0, find_offset("final_norm.weight"));
  for (int64_t stage = 1; stage <= spec.num_layers(); ++stage) {
    const int64_t layer = spec.num_layers() - stage;
    finish_stage(stage, find_offset(fmt::format("layers.{}.input_norm.weight", layer)));
  }
  finish_stage(spec.num_layers() + 1, 0);
  return parts;
}

std::vector<dist::Range> split_parts(std::span<const dist::Range> parts, int num_ranks) {
  std::vector<dist::Range> slices;
  for (const dist::Range& part : parts) {
    SLX_CHECK(part.begin % kSliceElements == 0 && part.size() % kSliceElements == 0,
              "part [{}, {})", part.begin, part.end);
    for (const dist::Range& slice : dist::split_range(part.size(), num_ranks, kSliceElements))
      slices.push_back({part.begin + slice.begin, part.begin + slice.end});
  }
  return slices;
}

std::vector<OwnedPiece> list_owned_pieces(std::span<const dist::Range> slices, int rank,
                                          int num_ranks) {
  std::vector<dist::Range> own;
  for (auto s = static_cast<size_t>(rank); s < slices.size(); s += static_cast<size_t>(num_ranks))
    if (slices[s].size() > 0) own.push_back(slices[s]);
  std::ranges::sort(own, {}, &dist::Range::begin);
  std::vector<OwnedPiece> pieces;
  int64_t begin = 0;
  for (const dist::Range& slice : own) {
    if (!pieces.empty() && pieces.back().range.end == slice.begin) {
      pieces.back().range.end = slice.end;
    } else {
      pieces.push_back({slice, begin});
    }
    begin += slice.size();
  }
  return pieces;
}

}  // namespace slimexx::train

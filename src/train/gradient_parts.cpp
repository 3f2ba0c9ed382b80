#include "slimexx/train/gradient_parts.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "slimexx/base/check.h"
#include "slimexx/model/spec.h"

namespace slimexx::train {
namespace {

// Returns the stage of backward after which a parameter's gradient is final.
int64_t stage_of(const model::ParameterInfo& info, int64_t num_layers) {
  constexpr std::string_view kLayers = "layers.", kEmbedding = "embedding.";
  const std::string_view name = info.name;
  if (name.starts_with(kEmbedding)) return num_layers + 1;
  if (!name.starts_with(kLayers)) return 0;
  int64_t layer = -1;
  std::from_chars(name.data() + kLayers.size(), name.data() + name.size(), layer);
  SLX_CHECK_GE(layer, 0);
  return std::max<int64_t>(num_layers - layer, 0);  // 0 for MTP layers, which follow the last layer
}

// Walks the group's parameters from the last to the first, because store order is layer order. One
// exception: on the last pipeline stage a copy of the embedding is stored after earlier chunks of
// layers, so these chunks wait for the copy's gradient.
void add_parts_of_group(const model::ParameterStore& store, size_t group, int64_t num_layers,
                        int64_t min_elements, std::vector<GradientPart>& parts) {
  int64_t end = store.groups()[group].num_elements, begin = end, stage = 0;
  const auto finish_stage = [&] {
    if (begin == end || (begin > 0 && end - begin < min_elements)) return;
    parts.push_back({{begin, end}, stage, group});
    end = begin;
  };
  for (auto info = store.infos().rbegin(); info != store.infos().rend(); ++info) {
    if (static_cast<size_t>(info->group) != group) continue;
    const int64_t next = std::max(stage, stage_of(*info, num_layers));
    if (next > stage) finish_stage();
    stage = next;
    begin = info->offset;
  }
  finish_stage();
}

}  // namespace

std::vector<GradientPart> list_gradient_parts(const model::ParameterStore& store,
                                              const model::ModelSpec& spec, int64_t min_elements) {
  std::vector<GradientPart> parts;
  for (size_t g = 0; g < store.groups().size(); ++g) {
    const model::ParameterGroup& group = store.groups()[g];
    if (!group.trainable) continue;
    add_parts_of_group(
        store, g, spec.num_layers(),
        min_elements > 0 ? min_elements : choose_min_part_elements(group.num_elements), parts);
  }
  std::ranges::stable_sort(parts, {}, &GradientPart::last_stage);
  return parts;
}

std::vector<dist::Range> split_parts(std::span<const dist::Range> parts, int num_ranks) {
  std::vector<dist::Range> slices;
  for (const dist::Range& part : parts) {
    SLX_CHECK(part.begin % kSliceElements == 0 && part.size() % kSliceElements == 0,
              "part [{}, {}) does not consist of whole slices", part.begin, part.end);
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

int64_t count_elements(std::span<const OwnedPiece> pieces) {
  return pieces.empty() ? 0 : pieces.back().begin + pieces.back().range.size();
}

}  // namespace slimexx::train

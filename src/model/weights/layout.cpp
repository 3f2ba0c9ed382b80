#include "slimexx/model/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/ranges.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/expert_placement.h"

namespace slimexx::model {
namespace {

// Rank `index` of `size` ranks along an axis of the grid.
struct Place {
  int size = 1, index = 0;
};

Place place_of(const ParameterInfo& info, GridDim dim, const dist::GridSizes& sizes,
               const dist::GridPosition& position) {
  if (dim == GridDim::kNone) return {};
  if (dim == GridDim::kExpert) return {sizes.ep, position.ep};
  if (info.reduce_group == ReduceGroup::kExpert) return {sizes.etp, position.etp};
  return {sizes.tp, position.tp};
}

// The rows or columns of a section that the rank at `place` holds.
dist::Range share_of(const ParameterInfo& info, const ShardSection& section, const Place& place) {
  const int64_t units = section.size / section.unit;
  if (section.size % section.unit != 0 || (units % place.size != 0 && place.size % units != 0)) {
    throw Error(ErrorCode::kUsage,
                fmt::format("{}: {} rows or columns in units of {} are not divisible by {} ranks",
                            info.name, section.size, section.unit, place.size),
                "change the sizes in section `parallel`", "");
  }
  if (units >= place.size) {
    const int64_t share = section.size / place.size;
    return {share * place.index, share * (place.index + 1)};
  }
  const int64_t unit = place.index * units / place.size;
  return {unit * section.unit, (unit + 1) * section.unit};
}

// Adds the parts of elements `held` along `axis`; in the narrowed parameter they start at `begin`.
void add_parts(const ParameterInfo& info, size_t axis, const dist::Range& held, int64_t begin,
               bool is_counted, std::vector<HfPart>& parts) {
  for (const HfPart& part : info.parts) {
    const size_t leading = info.shape.size() - part.size.size();
    if (axis < leading && (part.at[axis] < held.begin || part.at[axis] >= held.end)) continue;
    HfPart cut = part;
    cut.is_counted = part.is_counted && is_counted;
    if (axis < leading) {
      cut.at[axis] += begin - held.begin;
    } else {
      const size_t b = axis - leading;
      const dist::Range indices = find_indices(part, b, part.at[axis], held);
      if (indices.size() == 0) continue;
      cut.begin[b] += indices.begin;
      cut.size[b] = indices.size();
      cut.at[axis] += indices.begin * row_step_of(part, b) + begin - held.begin;
    }
    parts.push_back(std::move(cut));
  }
}

// Cuts the parameter along shard.axis. If several ranks hold the same unit of a section, only the
// first counts it.
void cut_axis(ParameterInfo& info, const Shard& shard, const Place& place) {
  const auto axis = static_cast<size_t>(shard.axis);
  SLX_CHECK_LT(axis, info.shape.size());
  std::vector<ShardSection> sections = shard.sections;
  if (sections.empty()) sections = {{info.shape[axis]}};
  std::vector<HfPart> parts;
  int64_t start = 0, size = 0;
  for (const ShardSection& section : sections) {
    const dist::Range share = share_of(info, section, place);
    const bool is_copy =
        place.index > 0 && share == share_of(info, section, {place.size, place.index - 1});
    add_parts(info, axis, {start + share.begin, start + share.end}, size, !is_copy, parts);
    start += section.size;
    size += share.size();
  }
  SLX_CHECK_EQ(start, info.shape[axis]);
  info.parts = std::move(parts);
  info.shape[axis] = size;
}

// Only the first copy of an expert is counted. Each copy is a part of its own, so that all ranks
// that hold the expert have equal boxes.
void cut_copies(ParameterInfo& info, const Shard& shard, const Place& place) {
  const auto axis = static_cast<size_t>(shard.axis);
  SLX_CHECK_LT(axis, info.shape.size());
  const int64_t experts = info.shape[axis];
  const ExpertPlacement placement{experts, shard.num_copies, place.size};
  const dist::Range held = placement.held_by(place.index);
  std::vector<HfPart> parts;
  for (int64_t copy = held.begin; copy < held.end; ++copy) {
    const int64_t expert = placement.expert_of(copy);
    add_parts(info, axis, {expert, expert + 1}, copy - held.begin, copy < experts, parts);
  }
  info.parts = std::move(parts);
  info.shape[axis] = held.size();
}

}  // namespace

ParameterInfo narrow(const ParameterInfo& whole, const dist::GridSizes& sizes,
                     const dist::GridPosition& position) {
  ParameterInfo info = whole;
  complete_parts(info);
  const bool is_expert = info.reduce_group == ReduceGroup::kExpert;
  for (const GridDim dim : {GridDim::kTensor, GridDim::kExpert}) {
    const Place place = place_of(info, dim, sizes, position);
    const auto shard = std::ranges::find(whole.shards, dim, &Shard::dim);
    const bool is_cut = shard != whole.shards.end();
    // Dense parameters are not split over EP: EP ranks are data-parallel for them.
    if (dim == GridDim::kExpert && !is_expert) {
      SLX_CHECK(!is_cut, "{} is sharded over experts, but is not an expert parameter", info.name);
      continue;
    }
    if (is_cut && place.size > 1)
      shard->num_copies > 0 ? cut_copies(info, *shard, place) : cut_axis(info, *shard, place);
    // Ranks with replicas of the parameter sum its gradient, and each owns a slice of the
    // parameter.
    if (!is_cut && !is_expert && place.size > 1) {
      info.reduce_group = ReduceGroup::kReplicated;
      continue;
    }
    if (is_cut || place.index == 0) continue;
    for (HfPart& part : info.parts) part.is_counted = false;  // replicated
  }
  info.shards.clear();
  complete_parts(info);
  return info;
}

Layout make_layout(const std::vector<std::vector<ParameterInfo>>& stages,
                   const dist::GridShape& grid) {
  SLX_CHECK_EQ(std::ssize(stages), grid.sizes().pp);
  std::map<std::tuple<int, int, int, int>, std::shared_ptr<const std::vector<ParameterInfo>>> made;
  Layout layout;
  for (int rank = 0; rank < grid.world_size(); ++rank) {
    const dist::GridPosition position = grid.position(rank);
    auto& list = made[{position.pp, position.tp, position.etp, position.ep}];
    if (list == nullptr) {
      std::vector<ParameterInfo> infos;
      for (const ParameterInfo& info : stages[static_cast<size_t>(position.pp)])
        infos.push_back(narrow(info, grid.sizes(), position));
      for (size_t i = 0; i < infos.size(); ++i) infos[i].id = static_cast<ParameterId>(i);
      list = std::make_shared<const std::vector<ParameterInfo>>(std::move(infos));
    }
    layout.ranks.push_back(list);
  }
  return layout;
}

}  // namespace slimexx::model

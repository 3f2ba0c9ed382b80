#include "slimexx/model/encoding.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

// The tensor on disk, and its block of rows, to which the rows of a unit belong.
struct UnitPlace {
  const HfPart* part = nullptr;
  int64_t block = 0;
};

int64_t count_rows(const ParameterInfo& info) { return info.num_elements() / info.shape.back(); }

// The place of every unit; empty if a unit has rows of several blocks, or a block is cut in
// columns.
std::vector<UnitPlace> list_unit_places(const ParameterInfo& info, const Encoding& encoding) {
  const size_t dims = info.shape.size();
  const int64_t unit = encoding.unit_rows;
  if (dims < 2 || info.shape.back() % encoding.block_columns != 0 || count_rows(info) % unit != 0)
    return {};
  std::vector<UnitPlace> places(static_cast<size_t>(count_rows(info) / unit));
  for (const HfPart& part : info.parts) {
    if (part.shape.size() != 2 || part.row_step != 1) return {};
    const int64_t at = part.at[dims - 2], rows = part.size[0];
    const bool is_aligned = at % unit == 0 && rows % unit == 0 && part.begin[0] % unit == 0 &&
                            part.shape[0] % unit == 0 && part.size[1] == info.shape.back() &&
                            part.begin[1] % encoding.block_columns == 0;
    if (!is_aligned) return {};
    const int64_t first = ((dims == 3 ? part.at[0] * info.shape[1] : 0) + at) / unit;
    for (int64_t i = 0; i < rows / unit; ++i)
      places[static_cast<size_t>(first + i)] = {&part,
                                                (part.begin[0] + i * unit) / encoding.block_rows};
  }
  for (const UnitPlace& place : places)
    if (place.part == nullptr) return {};
  return places;
}

// The units of each block of a tensor, ascending. An engine may hold copies of an expert: then the
// index of the copy is part of the key.
using BlockKey = std::tuple<std::string_view, int64_t, int64_t>;  // tensor, copy, block
std::map<BlockKey, std::vector<int32_t>> group_units(const ParameterInfo& info,
                                                     std::span<const UnitPlace> places) {
  std::map<BlockKey, std::vector<int32_t>> blocks;
  for (size_t u = 0; u < places.size(); ++u) {
    const HfPart& part = *places[u].part;
    const int64_t copy = info.shape.size() == 3 ? part.at[0] : 0;
    blocks[{part.name, copy, places[u].block}].push_back(static_cast<int32_t>(u));
  }
  return blocks;
}

// Number of units of a block in the whole tensor; a block at the tensor's end may have fewer.
int64_t units_of_block(const HfPart& part, int64_t block, const Encoding& encoding) {
  const int64_t rows = std::min(encoding.block_rows, part.shape[0] - block * encoding.block_rows);
  return rows / encoding.unit_rows;
}

bool can_encode(const ParameterInfo& whole, const Encoding& encoding,
                const dist::GridSizes& sizes) {
  if (!whole.is_linear) return false;
  const bool is_expert = whole.reduce_group == ReduceGroup::kExpert;
  const int ranks = is_expert ? sizes.etp : sizes.tp;
  for (int rank = 0; rank < ranks; ++rank) {
    dist::GridSizes cut;
    (is_expert ? cut.etp : cut.tp) = ranks;
    dist::GridPosition position;
    (is_expert ? position.etp : position.tp) = rank;
    if (!list_block_units(narrow(whole, cut, position), encoding)) return false;
  }
  return true;
}

// One row of a tensor of scales, number `on_disk`: the scales of one unit. Each block has
// units_per_block rows in that tensor, in the order of its units in the parameter.
HfPart scale_part(const HfPart& values, const Encoding& encoding, int64_t on_disk) {
  HfPart part{
      .name = values.name + "_scale_inv",
      .shape = {values.shape[0] / encoding.unit_rows, values.shape[1] / encoding.block_columns},
      .at = values.at,
      .begin = {on_disk, values.begin[1] / encoding.block_columns},
      .size = {1, values.size[1] / encoding.block_columns},
      .is_counted = values.is_counted};
  return part;
}

std::vector<HfPart> list_scale_parts(const ParameterInfo& info, const Encoding& encoding) {
  const std::vector<UnitPlace> places = list_unit_places(info, encoding);
  std::vector<int64_t> on_disk(places.size());
  for (const auto& [key, units] : group_units(info, places))
    for (size_t i = 0; i < units.size(); ++i)
      on_disk[static_cast<size_t>(units[i])] =
          std::get<2>(key) * encoding.units_per_block() + static_cast<int64_t>(i);
  const int64_t units_per_matrix = info.shape[info.shape.size() - 2] / encoding.unit_rows;
  std::vector<HfPart> parts;
  for (size_t u = 0; u < places.size(); ++u) {
    const bool goes_on =
        u > 0 && places[u].part == places[u - 1].part && on_disk[u] == on_disk[u - 1] + 1;
    if (goes_on) {
      ++parts.back().size[0];
      continue;
    }
    HfPart part = scale_part(*places[u].part, encoding, on_disk[u]);
    part.at[info.shape.size() - 2] = static_cast<int64_t>(u) % units_per_matrix;
    part.at.back() = 0;
    parts.push_back(std::move(part));
  }
  return parts;
}

template <class Change>
Layout change_lists(const Layout& layout, const Change& change) {
  std::map<const std::vector<ParameterInfo>*, std::shared_ptr<const std::vector<ParameterInfo>>>
      made;
  Layout changed;
  for (const auto& list : layout.ranks) {
    auto& own = made[list.get()];
    if (own == nullptr) own = std::make_shared<const std::vector<ParameterInfo>>(change(*list));
    changed.ranks.push_back(own);
  }
  return changed;
}

bool is_any_encoded(const Layout& layout) {
  return std::ranges::any_of(layout.ranks, [](const auto& list) {
    return std::ranges::any_of(*list,
                               [](const ParameterInfo& info) { return info.encoding != nullptr; });
  });
}

}  // namespace

void choose_encoded(ModelSpec& spec, const Encoding& encoding, const dist::GridSizes& sizes) {
  spec.encoding = nullptr;
  spec.encoded.clear();
  for (const ParameterInfo& info : list_parameters(spec))
    if (can_encode(info, encoding, sizes)) spec.encoded.push_back(info.name);
  std::ranges::sort(spec.encoded);
  spec.encoding = std::make_shared<const Encoding>(encoding);
}

std::optional<std::vector<int32_t>> list_block_units(const ParameterInfo& info,
                                                     const Encoding& encoding) {
  const std::vector<UnitPlace> places = list_unit_places(info, encoding);
  if (places.empty()) return std::nullopt;
  std::vector<int32_t> table;
  for (const auto& [key, units] : group_units(info, places)) {
    const UnitPlace& place = places[static_cast<size_t>(units[0])];
    if (std::ssize(units) != units_of_block(*place.part, place.block, encoding))
      return std::nullopt;
    table.insert(table.end(), units.begin(), units.end());
    table.resize(table.size() + static_cast<size_t>(encoding.units_per_block()) - units.size(), -1);
  }
  return table;
}

std::vector<ParameterInfo> list_derived(const std::vector<ParameterInfo>& infos) {
  std::vector<ParameterInfo> derived;
  for (size_t i = 0; i < infos.size(); ++i) {
    const ParameterInfo& info = infos[i];
    if (!info.encoding) continue;
    ParameterInfo values = info, scales = info;
    for (ParameterInfo* own : {&values, &scales}) {
      own->encoding = nullptr;
      own->has_plain = true;
      own->trainable = false;
      own->is_derived = true;
      own->zero_before_backward = false;
      own->id = static_cast<ParameterId>(std::ssize(infos) + std::ssize(derived) +
                                         (own == &scales ? 1 : 0));
    }
    values.name += ".values";
    values.dtype = info.encoding->values;
    scales.name += ".scales";
    scales.dtype = tensor::DType::kF32;
    scales.shape[scales.shape.size() - 2] /= info.encoding->unit_rows;
    scales.shape.back() /= info.encoding->block_columns;
    scales.parts = list_scale_parts(info, *info.encoding);
    derived.push_back(std::move(values));
    derived.push_back(std::move(scales));
  }
  return derived;
}

Layout list_moved(const Layout& layout) {
  if (!is_any_encoded(layout)) return layout;
  return change_lists(layout, [](const std::vector<ParameterInfo>& infos) {
    std::vector<ParameterInfo> moved;
    for (const ParameterInfo& info : infos)
      if (!info.encoding) moved.push_back(info);
    for (ParameterInfo& info : list_derived(infos)) moved.push_back(std::move(info));
    return moved;
  });
}

Layout without_plain(const Layout& layout) {
  if (!is_any_encoded(layout)) return layout;
  return change_lists(layout, [](const std::vector<ParameterInfo>& infos) {
    std::vector<ParameterInfo> encoded = infos;
    for (ParameterInfo& info : encoded) info.has_plain = !info.encoding;
    return encoded;
  });
}

void encode_weights(const ops::Context& ctx, const ParameterStore& store, tensor::Tensor changed) {
  for (const ParameterInfo& info : store.infos()) {
    if (!info.encoding || !info.has_plain) continue;
    const ops::Linear held = store.linear(info.id);
    const auto matrix = [](const tensor::Tensor& t) {
      return t.num_dims() == 2 ? t : t.reshaped({t.dim(0) * t.dim(1), t.dim(2)});
    };
    const tensor::Tensor plain = matrix(held.weight);
    info.encoding->encode(ctx, {.plain = plain,
                                .values = matrix(held.values),
                                .rounded = info.encoding->is_for_engines ? tensor::Tensor() : plain,
                                .scales = matrix(held.scales),
                                .units = store.block_units(info.id),
                                .rule = info.encoding->rule,
                                .changed = changed});
  }
}

}  // namespace slimexx::model

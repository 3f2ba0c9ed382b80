#include "slimexx/model/held_tensors.h"

#include <algorithm>
#include <map>
#include <vector>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"

namespace slimexx::model {

BoxPlace place_inside(const BoxPlace& outer, const tensor::Box& outer_box, const tensor::Box& box) {
  BoxPlace place = outer;
  for (size_t d = 0; d < outer.strides.size(); ++d)
    place.begin += (box.begin[d] - outer_box.begin[d]) * outer.strides[d];
  return place;
}

HeldTensors list_held_tensors(const Layout& layout) {
  struct Place {  // of a box among those of its tensor, and of its first holder
    HeldTensor* tensor;
    size_t box, holder;
  };
  HeldTensors tensors;
  // Replicas share their list, and so its places.
  std::map<const std::vector<ParameterInfo>*, std::vector<Place>> places_of;
  for (int rank = 0; rank < std::ssize(layout.ranks); ++rank) {
    const auto& list = layout.ranks[static_cast<size_t>(rank)];
    const auto [found, is_new] = places_of.try_emplace(list.get());
    std::vector<Place>& places = found->second;
    for (const Place& place : places) {
      auto& holders = place.tensor->boxes[place.box].holders;
      holders.push_back({rank, holders[place.holder].place});
    }
    if (!is_new) continue;
    for (const ParameterInfo& info : *list) {
      for (const PartBox& box : list_boxes(info)) {
        HeldTensor& tensor = tensors[info.parts[box.part].name];
        tensor.shape = info.parts[box.part].shape;
        auto held = std::ranges::find(tensor.boxes, box.on_disk, &HeldBox::box);
        if (held == tensor.boxes.end())
          held = tensor.boxes.insert(held, {.box = box.on_disk, .holders = {}});
        SLX_CHECK(held->holders.empty() || held->holders.back().rank < rank, "{} twice in rank {}",
                  info.parts[box.part].name, rank);
        places.push_back(
            {&tensor, static_cast<size_t>(held - tensor.boxes.begin()), held->holders.size()});
        held->holders.push_back({rank, {info.id, box.in_parameter, box.strides}});
      }
    }
  }
  return tensors;
}

void check_covered(const HeldTensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    std::vector<tensor::Box> boxes;
    for (const HeldBox& held : tensor.boxes) boxes.push_back(held.box);
    SLX_CHECK(tensor::cover_exactly(tensor.shape, boxes), "{}", name);
  }
}

dist::Range share_rows(int64_t begin, int64_t end, size_t index, size_t count) {
  const auto i = static_cast<int64_t>(index), n = static_cast<int64_t>(count);
  return {begin + (end - begin) * i / n, begin + (end - begin) * (i + 1) / n};
}

tensor::Box cut_rows(const tensor::Box& box, dist::Range rows) {
  tensor::Box cut = box;
  cut.begin[0] = box.begin[0] + rows.begin;
  cut.end[0] = box.begin[0] + rows.end;
  return cut;
}

}  // namespace slimexx::model

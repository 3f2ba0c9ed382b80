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

namespace {

// Gives each distinct list of a layout a number, in the order of the ranks that first use it.
std::vector<int> number_lists(const Layout& layout) {
  std::map<const std::vector<ParameterInfo>*, int> numbers;
  std::vector<int> of_rank;
  for (const auto& list : layout.ranks)
    of_rank.push_back(numbers.try_emplace(list.get(), std::ssize(numbers)).first->second);
  return of_rank;
}

void add_list(std::map<std::string, HeldTensor>& tensors, const std::vector<ParameterInfo>& infos,
              int list) {
  for (const ParameterInfo& info : infos) {
    for (const PartBox& box : list_boxes(info)) {
      HeldTensor& tensor = tensors[info.parts[box.part].name];
      tensor.shape = info.parts[box.part].shape;
      auto held = std::ranges::find(tensor.boxes, box.on_disk, &HeldBox::box);
      if (held == tensor.boxes.end())
        held = tensor.boxes.insert(held, {.box = box.on_disk, .places = {}, .holders = {}});
      SLX_CHECK(held->places.empty() || held->places.back().list < list,
                "a rank has the same elements of {} twice", info.parts[box.part].name);
      held->places.push_back({list, {info.id, box.in_parameter, box.strides}});
    }
  }
}

}  // namespace

HeldTensors list_held_tensors(const Layout& layout) {
  HeldTensors tensors;
  tensors.list_of_rank = number_lists(layout);
  std::vector<std::vector<int>> ranks_of;
  for (int rank = 0; rank < std::ssize(layout.ranks); ++rank) {
    const int list = tensors.list_of_rank[static_cast<size_t>(rank)];
    if (list == std::ssize(ranks_of)) {
      ranks_of.emplace_back();
      add_list(tensors.by_name, *layout.ranks[static_cast<size_t>(rank)], list);
    }
    ranks_of[static_cast<size_t>(list)].push_back(rank);
  }
  std::map<std::vector<int>, std::shared_ptr<const std::vector<int>>> holders_of;  // key: lists
  for (auto& [name, tensor] : tensors.by_name) {
    for (HeldBox& held : tensor.boxes) {
      std::vector<int> lists;
      for (const HeldPlace& place : held.places) lists.push_back(place.list);
      auto& holders = holders_of[lists];
      if (holders == nullptr) {
        std::vector<int> ranks;
        for (const int list : lists) {
          const auto& more = ranks_of[static_cast<size_t>(list)];
          ranks.insert(ranks.end(), more.begin(), more.end());
        }
        std::ranges::sort(ranks);
        holders = std::make_shared<const std::vector<int>>(std::move(ranks));
      }
      held.holders = holders;
    }
  }
  return tensors;
}

const BoxPlace* find_place(const HeldBox& held, int list) {
  const auto found = std::ranges::lower_bound(held.places, list, {}, &HeldPlace::list);
  return found != held.places.end() && found->list == list ? &found->place : nullptr;
}

Holder find_holder(const HeldTensors& tensors, const HeldBox& held, int rank) {
  const std::vector<int>& holders = *held.holders;
  return {.index = static_cast<size_t>(std::ranges::lower_bound(holders, rank) - holders.begin()),
          .count = holders.size(),
          .place = find_place(held, tensors.list_of_rank[static_cast<size_t>(rank)])};
}

void check_covered(const HeldTensors& tensors) {
  for (const auto& [name, tensor] : tensors.by_name) {
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

// Finds the ranks of a layout that hold each box of the tensors on disk.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/model/layout.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

// Where a box lies in a parameter: element (i, j) of the box is at
// begin + i * strides[0] + j * strides[1].
struct BoxPlace {
  ParameterId parameter = kNoParameter;
  int64_t begin = 0;
  std::vector<int64_t> strides = {};
};
// The place of `box`, which lies inside `outer_box`.
BoxPlace place_inside(const BoxPlace& outer, const tensor::Box& outer_box, const tensor::Box& box);

// Replicas share a list of parameters, hence also the place of a box. Memory and time therefore
// grow with the number of lists, not of ranks.
struct HeldPlace {
  int list = 0;  // a value of HeldTensors::list_of_rank
  BoxPlace place;
};
struct HeldBox {
  tensor::Box box;
  std::vector<HeldPlace> places;  // by ascending list
  // Ranks of the layout, ascending. Boxes with the same holders share the vector.
  std::shared_ptr<const std::vector<int>> holders;
};
struct HeldTensor {
  std::vector<int64_t> shape;
  std::vector<HeldBox> boxes;
};
struct HeldTensors {
  std::map<std::string, HeldTensor> by_name;
  std::vector<int> list_of_rank;  // lists are numbered by their first rank
};
HeldTensors list_held_tensors(const Layout& layout);
// Null if the ranks of that list do not hold the box.
const BoxPlace* find_place(const HeldBox& held, int list);

// A rank among the holders of a box, and the place of the box in that rank's store.
struct Holder {
  size_t index = 0, count = 0;
  const BoxPlace* place = nullptr;  // null: the rank holds nothing of the box
};
Holder find_holder(const HeldTensors& tensors, const HeldBox& held, int rank);
// SLX_CHECKs that the boxes of every tensor cover each element exactly once. Any two ranks must
// hold either the same box or disjoint boxes.
void check_covered(const HeldTensors& tensors);

// The share of rows [begin, end) of a box's first dimension that holder `index` of `count` reads or
// writes on behalf of all holders.
dist::Range share_rows(int64_t begin, int64_t end, size_t index, size_t count);
// The rows of a box, counted from its begin.
tensor::Box cut_rows(const tensor::Box& box, dist::Range rows);

}  // namespace slimexx::model

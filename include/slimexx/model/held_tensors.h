// Which ranks of a layout hold which boxes of the tensors on disk.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimexx/model/layout.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

// Where a box lies in a parameter: element (i, j) of it is begin + i * strides[0] + j * strides[1].
struct BoxPlace {
  ParameterId parameter = kNoParameter;
  int64_t begin = 0;
  std::vector<int64_t> strides = {};
};
// The place of `box`, which lies inside `outer_box`.
BoxPlace place_inside(const BoxPlace& outer, const tensor::Box& outer_box, const tensor::Box& box);

struct Holder {
  int rank = 0;  // of the layout
  BoxPlace place;
};
struct HeldBox {
  tensor::Box box;
  std::vector<Holder> holders;  // by ascending rank
};
struct HeldTensor {
  std::vector<int64_t> shape;
  std::vector<HeldBox> boxes;
};
using HeldTensors = std::map<std::string, HeldTensor>;  // by name
HeldTensors list_held_tensors(const Layout& layout);
// SLX_CHECKs that the boxes of every tensor cover it, each element once: two ranks hold the same
// box or none of the same elements.
void check_covered(const HeldTensors& tensors);

// Of rows [begin, end) of a box's first dimension, those that its holder `index` of `count` reads
// or writes for all of them.
dist::Range share_rows(int64_t begin, int64_t end, size_t index, size_t count);
// The rows of a box, counted from its begin.
tensor::Box cut_rows(const tensor::Box& box, dist::Range rows);

}  // namespace slimexx::model

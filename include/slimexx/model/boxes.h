// Where the elements of a parameter lie in the tensors on disk. The index space of the Hugging Face
// tensors is the one that all layouts share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/model/parameters.h"

namespace slimexx::model {

// Fills in what a part leaves empty. SLX_CHECKs that the parts lie inside their tensors and inside
// the parameter, and have as many elements as it.
void complete_parts(ParameterInfo& info);

// Elements that lie one behind another in the parameter and in the tensor of `part`.
struct ElementRun {
  int64_t in_parameter = 0, on_disk = 0, size = 0;
  size_t part = 0;  // index into ParameterInfo::parts
};
// Of elements [begin, end) of the flattened parameter, ascending; as few as can be.
std::vector<ElementRun> list_runs(const ParameterInfo& info);
std::vector<ElementRun> list_runs(const ParameterInfo& info, int64_t begin, int64_t end);

// A tensor on disk and the places of its elements in parameters.
struct TensorSource {
  std::string name;
  std::vector<int64_t> shape;
  struct Piece {
    int64_t on_disk = 0, size = 0;
    ParameterId parameter = kNoParameter;
    int64_t in_parameter = 0;
  };
  std::vector<Piece> pieces = {};  // ascending on disk
};
// In order of first appearance.
std::vector<TensorSource> list_tensor_sources(const std::vector<ParameterInfo>& infos);
// Elements [begin, end) of a tensor as it would stand on disk, in f32. Waits for the device.
void read_tensor(const ParameterStore& store, const TensorSource& tensor, int64_t begin,
                 int64_t end, float* values);

}  // namespace slimexx::model

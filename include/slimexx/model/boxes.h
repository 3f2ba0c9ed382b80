// Where the elements of a parameter lie in the tensors on disk. The index space of the Hugging Face
// tensors is the one that all layouts share.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/parameters.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

// Fills in what a part leaves empty. SLX_CHECKs that the parts lie inside their tensors and inside
// the parameter, and have as many elements as it.
void complete_parts(ParameterInfo& info);

// How far apart neighbours of a dimension of a part's box are in the parameter.
int64_t row_step_of(const HfPart& part, size_t dimension);
// Which indices of a dimension of the box lie between two of the parameter's, where index 0 is
// `at`.
dist::Range find_indices(const HfPart& part, size_t dimension, int64_t at, dist::Range between);

// A box of a tensor on disk, and where it lies in the parameter: element (i, j) of the box, counted
// from its begin, is element in_parameter + i * strides[0] + j * strides[1] of the flattened one.
struct PartBox {
  size_t part = 0;  // index into ParameterInfo::parts
  tensor::Box on_disk = {};
  int64_t in_parameter = 0;
  std::vector<int64_t> strides = {};
};
// Of elements [begin, end) of the flattened parameter: at most five for each part.
std::vector<PartBox> list_boxes(const ParameterInfo& info, int64_t begin, int64_t end);
std::vector<PartBox> list_boxes(const ParameterInfo& info);

// Elements that are consecutive both in the parameter and in the tensor of `part`.
struct ElementRun {
  int64_t in_parameter = 0, on_disk = 0, size = 0;
  size_t part = 0;
};
// The same elements as runs, ascending in the parameter; as few as can be.
std::vector<ElementRun> list_runs(const ParameterInfo& info, int64_t begin, int64_t end);
std::vector<ElementRun> list_runs(const ParameterInfo& info);

// Elements of the flattened parameter that other ranks count (HfPart::is_counted), ascending.
std::vector<dist::Range> list_copied_ranges(const ParameterInfo& info);

// A tensor on disk and the places of its elements in parameters.
struct TensorSource {
  std::string name;
  std::vector<int64_t> shape;
  std::optional<tensor::DType> dtype = {};  // HfPart::dtype, or ParameterInfo's
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

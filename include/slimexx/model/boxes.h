// Maps the elements of a parameter to the tensors on disk. All layouts share the index space of the
// Hugging Face tensors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/parameters.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

// Fills in the fields that a part leaves empty. SLX_CHECKs that the parts lie inside their tensors
// and inside the parameter, and together have as many elements as the parameter.
void complete_parts(ParameterInfo& info);

// Stride in the parameter, in elements, of one dimension of a part's box.
int64_t row_step_of(const HfPart& part, size_t dimension);
// The indices of one box dimension whose elements lie in `between` of the flattened parameter.
// Index 0 lies at `at`.
dist::Range find_indices(const HfPart& part, size_t dimension, int64_t at, dist::Range between);

// A box of a tensor on disk and its place in the parameter: element (i, j), counted from the begin
// of the box, is element in_parameter + i * strides[0] + j * strides[1] of the flattened parameter.
struct PartBox {
  size_t part = 0;  // index into ParameterInfo::parts
  tensor::Box on_disk = {};
  int64_t in_parameter = 0;
  std::vector<int64_t> strides = {};
};
// The boxes of elements [begin, end) of the flattened parameter: at most five per part.
std::vector<PartBox> list_boxes(const ParameterInfo& info, int64_t begin, int64_t end);
std::vector<PartBox> list_boxes(const ParameterInfo& info);

// Elements that are consecutive both in the parameter and in the tensor of `part`.
struct ElementRun {
  int64_t in_parameter = 0, on_disk = 0, size = 0;
  size_t part = 0;
};
// Elements [begin, end) of the flattened parameter as the fewest possible runs, ascending in the
// parameter.
std::vector<ElementRun> list_runs(const ParameterInfo& info, int64_t begin, int64_t end);
std::vector<ElementRun> list_runs(const ParameterInfo& info);

// Elements of the flattened parameter that other ranks count (HfPart::is_counted), ascending.
std::vector<dist::Range> list_copied_ranges(const ParameterInfo& info);

// A tensor on disk and the parameters that hold its elements.
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
// The tensors of all `infos`, in order of first appearance.
std::vector<TensorSource> list_tensor_sources(const std::vector<ParameterInfo>& infos);

}  // namespace slimexx::model

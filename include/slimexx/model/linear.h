// The weights of a product as a parameter of a block: two parameters by id, or the operand itself.
#pragma once
#include <type_traits>

#include "slimexx/model/parameters.h"
#include "slimexx/ops/linear.h"

namespace slimexx::model {

struct LinearIds {
  ParameterId weight = kNoParameter, bias = kNoParameter;
};

// T is ParameterId or Tensor, as for the other parameters of a block.
template <class T>
using Linear = std::conditional_t<std::is_same_v<T, ParameterId>, LinearIds, ops::Linear>;

}  // namespace slimexx::model

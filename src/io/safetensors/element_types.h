// The element types of the safetensors format. Tensors with types that DType lacks have their byte
// ranges checked like all others, but cannot be read.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "slimexx/tensor/dtype.h"

namespace slimexx::io {

struct ElementType {
  std::string_view name;
  uint64_t bits;
  std::optional<tensor::DType> dtype;
};

const ElementType* find_element_type(std::string_view name);  // null if not in the format

// Position in the format's order; writers sort tensors by descending position.
int element_type_order(tensor::DType dtype);

}  // namespace slimexx::io

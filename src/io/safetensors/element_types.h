// The element types that the safetensors format knows. A file may hold types that DType lacks:
// their byte ranges are checked like all others, but they cannot be read.
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

const ElementType* find_element_type(std::string_view name);  // null if the format has none such

// Position in the format's own order; files are written by descending position.
int element_type_order(tensor::DType dtype);

}  // namespace slimexx::io

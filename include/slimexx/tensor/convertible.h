// The element types that convert_elements (dtype.h) reads and writes.
#pragma once
#include <string_view>

#include "slimexx/tensor/dtype.h"

namespace slimexx::tensor {

// The names used in config.json.
inline constexpr std::string_view kConvertibleTorchNames = "bfloat16, float16, float32, float64";

inline bool is_convertible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

}  // namespace slimexx::tensor

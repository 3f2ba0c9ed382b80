#include "io/safetensors/element_types.h"

#include <algorithm>
#include <array>

#include "slimexx/base/check.h"

namespace slimexx::io {
namespace {

using tensor::DType;

// Sorted by alignment, as in the reference implementation.
constexpr std::array<ElementType, 22> kTypes{{
    {"BOOL", 8, DType::kBool},
    {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt},
    {"U8", 8, DType::kU8},
    {"I8", 8, DType::kI8},
    {"F8_E5M2", 8, DType::kF8E5M2},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E8M0", 8, std::nullopt},
    {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt},
    {"I16", 16, DType::kI16},
    {"U16", 16, std::nullopt},
    {"F16", 16, DType::kF16},
    {"BF16", 16, DType::kBF16},
    {"I32", 32, DType::kI32},
    {"U32", 32, std::nullopt},
    {"F32", 32, DType::kF32},
    {"C64", 64, std::nullopt},
    {"F64", 64, DType::kF64},
    {"I64", 64, DType::kI64},
    {"U64", 64, std::nullopt},
}};

}  // namespace

const ElementType* find_element_type(std::string_view name) {
  const auto it = std::ranges::find(kTypes, name, &ElementType::name);
  return it == kTypes.end() ? nullptr : &*it;
}

int element_type_order(DType dtype) {
  const auto it = std::ranges::find(kTypes, std::optional(dtype), &ElementType::dtype);
  SLX_CHECK(it != kTypes.end(), "dtype {} is not in the safetensors format", int(dtype));
  return int(it - kTypes.begin());
}

}  // namespace slimexx::io

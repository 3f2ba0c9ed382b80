// Element types, their names in files, and the conversions between them (round to nearest even).
#pragma once
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace slimexx::tensor {

enum class DType : uint8_t {
  kF32,
  kBF16,
  kF16,
  kF64,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

int64_t dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);  // the safetensors name: "BF16"
std::optional<DType> parse_safetensors_dtype(std::string_view name);
std::optional<DType> parse_torch_dtype(
    std::string_view name);  // the name in config.json: "bfloat16"

inline float bf16_to_f32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
    return static_cast<uint16_t>(bits >> 16 | 0x40u);  // quiet NaN
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
float f8_e4m3_to_f32(uint8_t bits);  // the E4M3FN variant: no infinities, 0x7F and 0xFF are NaN
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);

// Converts n elements between floating types (kF32, kBF16, kF16, kF64) on the host; equal types are
// copied. Also reads kF8E4M3, without applying scales.
void convert_elements(DType from, const void* source, DType to, void* destination, int64_t n);

}  // namespace slimexx::tensor

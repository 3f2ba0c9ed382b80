#include "slimexx/tensor/dtype.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::tensor {
namespace {

struct DTypeInfo {
  DType dtype;
  int64_t bytes;
  std::string_view name, torch_name;
};

constexpr std::array<DTypeInfo, 12> kInfos{{
    {DType::kF32, 4, "F32", "float32"},
    {DType::kBF16, 2, "BF16", "bfloat16"},
    {DType::kF16, 2, "F16", "float16"},
    {DType::kF64, 8, "F64", "float64"},
    {DType::kI64, 8, "I64", "int64"},
    {DType::kI32, 4, "I32", "int32"},
    {DType::kI16, 2, "I16", "int16"},
    {DType::kI8, 1, "I8", "int8"},
    {DType::kU8, 1, "U8", "uint8"},
    {DType::kBool, 1, "BOOL", "bool"},
    {DType::kF8E4M3, 1, "F8_E4M3", "float8_e4m3fn"},
    {DType::kF8E5M2, 1, "F8_E5M2", "float8_e5m2"},
}};

const DTypeInfo& info(DType dtype) { return kInfos[static_cast<size_t>(dtype)]; }

double load_element(DType dtype, const void* base, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(base)[i];
    case DType::kF64:
      return static_cast<const double*>(base)[i];
    case DType::kBF16:
      return bf16_to_f32(static_cast<const uint16_t*>(base)[i]);
    case DType::kF16:
      return f16_to_f32(static_cast<const uint16_t*>(base)[i]);
    case DType::kF8E4M3:
      return f8_e4m3_to_f32(static_cast<const uint8_t*>(base)[i]);
    default:
      SLX_CHECK(false, "no conversion from {}", dtype_name(dtype));
  }
  return 0;
}

void store_element(DType dtype, void* base, int64_t i, double value) {
  const auto f = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(base)[i] = f;
      return;
    case DType::kF64:
      static_cast<double*>(base)[i] = value;
      return;
    case DType::kBF16:
      static_cast<uint16_t*>(base)[i] = f32_to_bf16(f);
      return;
    case DType::kF16:
      static_cast<uint16_t*>(base)[i] = f32_to_f16(f);
      return;
    default:
      SLX_CHECK(false, "no conversion to {}", dtype_name(dtype));
  }
}

template <class From, class To, class Convert>
void convert_all(const void* source, void* destination, int64_t n, const Convert& convert) {
  const From* from = static_cast<const From*>(source);
  To* to = static_cast<To*>(destination);
  constexpr int64_t kAtOnce = 1 << 16;  // elements per thread
  parallel_for(n, kAtOnce, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert(from[i]);
  });
}

}  // namespace

int64_t dtype_bytes(DType dtype) { return info(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return info(dtype).name; }

std::optional<DType> parse_safetensors_dtype(std::string_view name) {
  for (const auto& i : kInfos) {
    if (i.name == name) return i.dtype;
  }
  return std::nullopt;
}

std::optional<DType> parse_torch_dtype(std::string_view name) {
  for (const auto& i : kInfos) {
    if (i.torch_name == name) return i.dtype;
  }
  return std::nullopt;
}

float f8_e4m3_to_f32(uint8_t bits) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      const uint32_t exponent = i >> 3 & 0xF, mantissa = i & 7;
      float magnitude = std::numeric_limits<float>::quiet_NaN();
      if (exponent == 0)
        magnitude = std::ldexp(static_cast<float>(mantissa), -9);
      else if (exponent != 15 || mantissa != 7)
        magnitude = std::ldexp(static_cast<float>(8 + mantissa), static_cast<int>(exponent) - 10);
      table[i] = (i & 0x80) != 0 ? -magnitude : magnitude;
    }
    return table;
  }();
  return values[bits];
}

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {                        // below 2^-14: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24f;
    return sign | static_cast<uint16_t>(std::nearbyint(scaled));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return sign | static_cast<uint16_t>((rounded >> 13) - (112u << 10));
}

void convert_elements(DType from, const void* source, DType to, void* destination, int64_t n) {
  if (n == 0) return;  // the pointers may be null then
  if (from == to) {
    std::memcpy(destination, source, static_cast<size_t>(n * dtype_bytes(from)));
  } else if (from == DType::kBF16 && to == DType::kF32) {
    convert_all<uint16_t, float>(source, destination, n, [](uint16_t x) { return bf16_to_f32(x); });
  } else if (from == DType::kF8E4M3 && to == DType::kF32) {
    convert_all<uint8_t, float>(source, destination, n,
                                [](uint8_t x) { return f8_e4m3_to_f32(x); });
  } else if (from == DType::kF32 && to == DType::kBF16) {
    convert_all<float, uint16_t>(source, destination, n, [](float x) { return f32_to_bf16(x); });
  } else {
    for (int64_t i = 0; i < n; ++i)
      store_element(to, destination, i, load_element(from, source, i));
  }
}

}  // namespace slimexx::tensor

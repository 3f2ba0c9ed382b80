#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "io/fp8/quantise.h"
#include "slimexx/io/fp8_conversion.h"

namespace slimexx::io {
namespace {

using tensor::DType;

// Tensors whose names contain one of these pieces are not quantised. The list is that of slime's
// convert_hf_to_fp8.py plus the head of an MTP layer, which serving engines read unquantised.
constexpr std::array<std::string_view, 15> kKeptNames{
    "layernorm", "embed",   "router",       "mlp.gate.",        "norm",
    "lm_head",   "eh_proj", "weights_proj", "shared_head.head", "conv1d",
    "A_log",     "dt_bias", "in_proj_a",    "in_proj_b",        "visual."};

uint32_t magnitude(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFF; }

// Quantises a rectangle of a row-major matrix of `columns` columns with one scale.
void quantise_rectangle(const float* x, int64_t rows, int64_t width, int64_t columns, float scale,
                        uint8_t* q) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i)
      q[row * columns + i] = tensor::f32_to_f8_e4m3(x[row * columns + i] / scale);
}

}  // namespace

bool is_fp8_weight(const TensorEntry& entry) {
  const bool is_real = entry.dtype == DType::kBF16 || entry.dtype == DType::kF16 ||
                       entry.dtype == DType::kF32 || entry.dtype == DType::kF64;
  if (!is_real || entry.shape.size() != 2 || !entry.name.ends_with(".weight")) return false;
  return std::ranges::none_of(kKeptNames, [&](std::string_view piece) {
    return entry.name.find(piece) != std::string::npos;
  });
}

float largest_magnitude(const float* x, int64_t rows, int64_t width, int64_t columns) {
  // The bit patterns of magnitudes sort like the magnitudes, and NaN sorts above infinity.
  uint32_t most = 0;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < width; ++i) most = std::max(most, magnitude(x[row * columns + i]));
  return std::bit_cast<float>(most);
}

void quantise_rows(const Fp8Options& options, const float* x, int64_t rows, int64_t columns,
                   float tensor_amax, uint8_t* q, float* scales) {
  if (options.strategy == Fp8Strategy::kTensor) {
    *scales = tensor::f8_scale(tensor_amax, options.scale_rule);
    return quantise_rectangle(x, rows, columns, columns, *scales, q);
  }
  const bool is_block = options.strategy == Fp8Strategy::kBlock;
  const int64_t block_rows = is_block ? options.block_rows : 1;
  const int64_t block_columns = is_block ? options.block_columns : std::max<int64_t>(columns, 1);
  for (int64_t row = 0; row < rows; row += block_rows) {
    for (int64_t column = 0; column < columns; column += block_columns) {
      const int64_t height = std::min(block_rows, rows - row);
      const int64_t width = std::min(block_columns, columns - column);
      const float* from = x + row * columns + column;
      const float amax = largest_magnitude(from, height, width, columns);
      *scales = tensor::f8_scale(amax, options.scale_rule);
      quantise_rectangle(from, height, width, columns, *scales, q + row * columns + column);
      ++scales;
    }
  }
}

}  // namespace slimexx::io

// Supported FP8 checkpoints: e4m3 values, each to be multiplied by a scale.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::model {

enum class ScaleKind : uint8_t { kBlock, kChannel, kTensor };

struct Quantization {
  ScaleKind kind = ScaleKind::kBlock;
  int64_t block_rows = 0, block_columns = 0;  // kBlock: values per scale; fewer at the edges
  std::string scale_suffix;                   // appended to a tensor's name to name its scales

  // Rows and columns of the values that share a scale, in a matrix.
  int64_t rows_of_scale(int64_t rows) const;
  int64_t columns_of_scale(int64_t columns) const;
  std::string describe() const;  // "one scale for each block of 128x128"
};

// Reads config.json's quantization_config; nullopt if the weights are not quantised. Throws
// Error(kInput) naming `where` and the unsupported value. Ignores the lists of unquantised modules:
// a tensor's dtype tells whether it is FP8 (GLM-5 lists modules that do not exist).
std::optional<Quantization> read_quantization(const Json& config, const std::string& where);

}  // namespace slimexx::model

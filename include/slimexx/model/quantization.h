// The forms of FP8 checkpoints that are read: e4m3 values, each to be multiplied by a scale.
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
  int64_t block_rows = 0, block_columns = 0;  // kBlock: what a scale is for; smaller at the edges
  std::string scale_suffix;                   // appended to the tensor's name for its scales

  // Rows and columns of the values that share a scale, in a matrix.
  int64_t rows_of_scale(int64_t rows) const;
  int64_t columns_of_scale(int64_t columns) const;
  std::string describe() const;  // "one scale for each block of 128x128"
};

// What config.json's quantization_config says; nullopt if the weights are plain. Throws
// Error(kInput) naming `where` and the value that is not understood. The lists of modules that were
// left as they are need no reading: a tensor is FP8 if its dtype is (GLM-5 lists modules that do
// not exist).
std::optional<Quantization> read_quantization(const Json& config, const std::string& where);

}  // namespace slimexx::model

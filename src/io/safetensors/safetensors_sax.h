// Reads the header's JSON from parser events, without a tree, so that memory stays near the
// header's size for any nesting.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors/element_types.h"
#include "slimexx/io/safetensors.h"

namespace slimexx::io {

struct RawTensor {
  TensorEntry entry;  // dtype is set later
  const ElementType* type = nullptr;
  bool has_shape = false, has_offsets = false;
};

struct RawHeader {
  std::vector<RawTensor> tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
};

// Checks the syntax and types only; the caller checks offsets against shapes and the file.
RawHeader read_header_json(std::string_view json, const std::string& path);

}  // namespace slimexx::io

// Tensors of a safetensors file as f32 vectors, and their differences.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slimexx::e2e {

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> data;
};
using Tensors = std::map<std::string, Values>;

// Every f32 tensor of the file whose name starts with `prefix`; the prefix is removed.
Tensors read_tensors(const std::string& path, const std::string& prefix = "");
std::vector<int64_t> read_int64(const std::string& path, const std::string& name);

struct Difference {
  double max_abs = 0, relative = 0;  // ||a - b|| / ||b||
  double norm = 0;                   // ||b||
  size_t where = 0;                  // index of max_abs
};
Difference compare(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace slimexx::e2e

// Where and in which form a folder stores the tensors of a model. The model expects plain values
// and one tensor per expert; StoredTensors also reads FP8 values with scales, and the experts of a
// layer stacked in one tensor.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "slimexx/io/hf_folder.h"
#include "slimexx/model/quantization.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

// A matrix of scales, one per block of block_rows x block_columns values.
struct StoredScales {
  io::HfFolder::Located located = {};
  int64_t first = 0, rows = 0, columns = 0;  // position of this matrix in the tensor of scales
  int64_t block_rows = 1, block_columns = 1;
  int64_t first_row = 0;  // row of the tensor in the scaled matrix
};

struct StoredTensor {
  std::string fault = {};  // why the tensor is unreadable, with its name; empty: readable
  io::HfFolder::Located located = {};
  int64_t first = 0;                        // element of `located` where the model's tensor begins
  std::optional<StoredScales> scales = {};  // only for FP8

  tensor::DType dtype() const { return located.entry->dtype; }
  // Reads elements [begin, end) in the file's dtype.
  void read(int64_t begin, int64_t end, void* destination) const;
  std::vector<float> read_scales() const;  // empty for plain values
  // Converts a box in row-major order from the file's dtype to f32.
  void convert(const tensor::Box& box, std::span<const float> scales, const void* raw,
               float* values) const;
};

// Shapes of a model's tensors, by name.
using WantedTensors = std::map<std::string, std::vector<int64_t>>;

class StoredTensors {
 public:
  StoredTensors(const io::HfFolder& folder, const WantedTensors& wanted);
  const StoredTensor& find(const std::string& name) const { return tensors_.at(name); }
  // The reasons why tensors cannot be read, each fault once.
  std::vector<std::string> list_faults() const;
  // Tensors of the folder that no tensor of the model needs, and why one of them is not needed.
  std::vector<std::string> list_unused() const;
  std::string explain_unused(const std::string& name) const;
  // If config.json has a quantization_config, logs how many tensors are dequantised.
  void log_quantization(tensor::DType export_dtype) const;

 private:
  StoredTensor locate(const std::string& name, const std::vector<int64_t>& shape);
  std::string find_scales(StoredTensor& tensor, const std::vector<int64_t>& shape,
                          int64_t first_row, int64_t rows, int64_t matrix);

  io::HfFolder folder_;  // keeps open the files that tensors_ points into
  std::optional<Quantization> quantization_;
  std::map<std::string, int64_t> num_experts_;  // key: the name up to the expert's number
  std::map<std::string, StoredTensor> tensors_;
  std::set<std::string> used_, dequantised_;  // tensors of the folder
};

}  // namespace slimexx::model

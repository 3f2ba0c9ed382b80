// Lists the tensors of a Hugging Face folder or a sharded checkpoint; their data is read in pieces.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {

using TensorList = std::vector<HfTensor>;

// All tensors of the folder in their stored dtypes, sorted by name, including tensors that no
// supported model uses. The folder must outlive the list.
TensorList list_tensors(const HfFolder& folder);

// Tensor name -> name of the file that holds it.
std::map<std::string, std::string> map_shards(const HfFolder& folder);

// The weights of a checkpoint for a Hugging Face folder, sorted by name: from section "master" if
// it has the tensor, otherwise from "weights"; cast to their export_dtype. Without an
// export_dtype, f32 tensors from training are cast to `config_dtype`. The checkpoint must outlive
// the list.
TensorList list_weights(const Checkpoint& checkpoint, tensor::DType config_dtype);
// The weights of list_weights in the dtypes of the checkpoint, without casts.
TensorList list_exact_weights(const Checkpoint& checkpoint);

// "dtype" (or "torch_dtype") of a config.json; bf16 if it has neither.
tensor::DType dtype_of_config(const Json& config, const std::string& where);

int64_t num_elements(const HfTensor& tensor);

// The comparison of one tensor in two lists: one row of a table.
struct Difference {
  std::string name, shape, dtype, verdict;
  bool is_equal = true;
};
// Compares bit for bit, a few MiB at a time; both lists are ordered by name.
std::vector<Difference> compare_tensors(const TensorList& expected, const TensorList& found);

}  // namespace slimexx::io

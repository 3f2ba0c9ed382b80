// Tensors of a Hugging Face folder or of a sharded checkpoint as one kind of list, read in pieces.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {

using TensorList = std::vector<HfTensor>;

// All tensors of the folder as they stand, whether or not a model here knows them; by name. The
// folder is borrowed.
TensorList list_tensors(const HfFolder& folder);

// Which file of the folder holds which tensor.
std::map<std::string, std::string> map_shards(const HfFolder& folder);

// The weights of a checkpoint, by name, as a Hugging Face folder has them: of section "master"
// where a tensor has one, else of "weights", cast to their export_dtype. Where the checkpoint names
// none, what training computed in is cast to `config_dtype`. The checkpoint is borrowed.
TensorList list_weights(const Checkpoint& checkpoint, tensor::DType config_dtype);
// The same weights in the types that the checkpoint holds them in.
TensorList list_exact_weights(const Checkpoint& checkpoint);

// "dtype" (or "torch_dtype") of a config.json; bf16 if it says nothing.
tensor::DType dtype_of_config(const Json& config, const std::string& where);

int64_t num_elements(const HfTensor& tensor);

// What differs between two lists: one line a tensor, for a table.
struct Difference {
  std::string name, shape, dtype, verdict;
  bool is_equal = true;
};
// Compares bit for bit, a few MiB at a time; both lists are ordered by name.
std::vector<Difference> compare_tensors(const TensorList& expected, const TensorList& found);

}  // namespace slimexx::io

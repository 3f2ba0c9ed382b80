#include "slimexx/io/tensor_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/quote_name.h"
#include "slimexx/base/error.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::io {
namespace {

constexpr const char *kMaster = "master", *kWeights = "weights";

bool holds_section(const Checkpoint& checkpoint, const char* section) {
  return std::ranges::any_of(checkpoint.tensors(),
                             [&](const CheckpointTensor& t) { return t.section == section; });
}

// Guesses the export dtype for checkpoints of earlier versions, which do not record it. Their f32
// tensors come from training, except correction biases, which are f32 in every export.
tensor::DType guess_dtype(const CheckpointTensor& t, bool is_trained, tensor::DType config_dtype) {
  const bool is_computed = t.section == kMaster || (is_trained && t.dtype == tensor::DType::kF32);
  return is_computed && !t.name.ends_with("e_score_correction_bias") ? config_dtype : t.dtype;
}

// A tensor of the checkpoint that is converted to `dtype` when read.
HfTensor cast(const Checkpoint& checkpoint, const CheckpointTensor& t, tensor::DType dtype) {
  return {
      t.name, dtype, t.shape,
      [&checkpoint, &t, dtype](int64_t begin, int64_t end, void* destination) {
        if (t.dtype == dtype) return checkpoint.read(t.section, t.name, begin, end, destination);
        std::vector<char> values(static_cast<size_t>((end - begin) * tensor::dtype_bytes(t.dtype)));
        checkpoint.read(t.section, t.name, begin, end, values.data());
        tensor::convert_elements(t.dtype, values.data(), dtype, destination, end - begin);
      }};
}

// The weights sorted by name, each converted to dtype_of(tensor).
template <class DTypeOf>
TensorList list_cast(const Checkpoint& checkpoint, const DTypeOf& dtype_of) {
  std::map<std::string, HfTensor> by_name;
  for (const CheckpointTensor& t : checkpoint.tensors()) {
    const bool is_weight = t.section == kWeights && checkpoint.find(kMaster, t.name) == nullptr;
    if (t.section == kMaster || is_weight) by_name[t.name] = cast(checkpoint, t, dtype_of(t));
  }
  TensorList tensors;
  for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
  return tensors;
}

}  // namespace

TensorList list_tensors(const HfFolder& folder) {
  TensorList tensors;
  for (const std::string& name : folder.tensor_names()) {
    const HfFolder::Located at = *folder.find(name);
    tensors.push_back({name, at.entry->dtype, at.entry->shape,
                       [at](int64_t begin, int64_t end, void* destination) {
                         at.file->read(*at.entry, begin, end, destination);
                       }});
  }
  return tensors;
}

std::map<std::string, std::string> map_shards(const HfFolder& folder) {
  std::map<std::string, std::string> shards;
  for (const std::string& name : folder.tensor_names()) {
    shards[name] = std::filesystem::path(folder.find(name)->file->path()).filename().string();
  }
  return shards;
}

TensorList list_weights(const Checkpoint& checkpoint, tensor::DType config_dtype) {
  const bool is_trained = holds_section(checkpoint, kMaster);
  return list_cast(checkpoint, [&](const CheckpointTensor& t) {
    return t.export_dtype.value_or(guess_dtype(t, is_trained, config_dtype));
  });
}

TensorList list_exact_weights(const Checkpoint& checkpoint) {
  return list_cast(checkpoint, [](const CheckpointTensor& t) { return t.dtype; });
}

tensor::DType dtype_of_config(const Json& config, const std::string& where) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.is_object() || !config.contains(key) || config.at(key).is_null()) continue;
    const auto dtype = tensor::parse_torch_dtype(json_string(config, key, where));
    if (dtype && tensor::is_convertible(*dtype)) return *dtype;
    throw Error(ErrorCode::kInput,
                fmt::format("key \"{}\" is {}, which is not a supported dtype for weights", key,
                            quote_name(json_string(config, key, where))),
                fmt::format("supported: {}", tensor::kConvertibleTorchNames), where);
  }
  return tensor::DType::kBF16;
}

int64_t num_elements(const HfTensor& tensor) {
  int64_t n = 1;
  for (const int64_t d : tensor.shape) n *= d;
  return n;
}

}  // namespace slimexx::io

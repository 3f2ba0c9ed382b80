#include "slimexx/io/tensor_list.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::io {
namespace {

// Reads f32 and gives `dtype`.
std::function<void(int64_t, int64_t, void*)> cast_master(const Checkpoint& checkpoint,
                                                         const std::string& name,
                                                         tensor::DType dtype) {
  return [&checkpoint, name, dtype](int64_t begin, int64_t end, void* destination) {
    std::vector<float> values(static_cast<size_t>(end - begin));
    checkpoint.read("master", name, begin, end, values.data());
    tensor::convert_elements(tensor::DType::kF32, values.data(), dtype, destination, end - begin);
  };
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

TensorList list_weights(const Checkpoint& checkpoint, tensor::DType master_dtype) {
  std::map<std::string, HfTensor> by_name;
  for (const CheckpointTensor& t : checkpoint.tensors()) {
    if (t.section == "master") {
      by_name[t.name] = {t.name, master_dtype, t.shape,
                         cast_master(checkpoint, t.name, master_dtype)};
    } else if (t.section == "weights" && checkpoint.find("master", t.name) == nullptr) {
      by_name[t.name] = {t.name, t.dtype, t.shape,
                         [&checkpoint, name = t.name](int64_t begin, int64_t end, void* out) {
                           checkpoint.read("weights", name, begin, end, out);
                         }};
    }
  }
  TensorList tensors;
  for (auto& [name, tensor] : by_name) tensors.push_back(std::move(tensor));
  return tensors;
}

tensor::DType dtype_of_config(const Json& config, const std::string& where) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.is_object() || !config.contains(key) || config.at(key).is_null()) continue;
    const auto dtype = tensor::parse_torch_dtype(json_string(config, key, where));
    if (dtype && tensor::is_convertible(*dtype)) return *dtype;
    throw Error(ErrorCode::kInput,
                fmt::format("key \"{}\" is \"{}\", no dtype that weights are written in", key,
                            json_string(config, key, where)),
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

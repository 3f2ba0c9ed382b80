// Makes small folders with the tensor names of real families, in all supported forms: plain, FP8
// with scales, stacked experts.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/temp_dir.h"
#include "slimexx/base/philox.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"
#include "test_paths.h"

namespace slimexx::model {

struct StoredBytes {
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  std::string bytes;
};
using StoredMap = std::map<std::string, StoredBytes>;

inline StoredBytes store_floats(const std::vector<int64_t>& shape, const std::vector<float>& values,
                                tensor::DType dtype = tensor::DType::kF32) {
  std::string bytes(values.size() * static_cast<size_t>(tensor::dtype_bytes(dtype)), '\0');
  tensor::convert_elements(tensor::DType::kF32, values.data(), dtype, bytes.data(),
                           std::ssize(values));
  return {dtype, shape, bytes};
}

// A golden model's configuration with sizes that are not multiples of 128: weights end inside a
// block, and shards begin inside one.
inline Json small_config(const std::string& family) {
  Json config = parse_json_file(test_data_path("golden/oracle/" + family + "/config.json"));
  for (const char* key : {"mlp_layer_types", "layer_types", "num_nextn_predict_layers"})
    config.erase(key);
  config["hidden_size"] = 200;
  config["intermediate_size"] = 280;
  config["moe_intermediate_size"] = 72;
  config["num_hidden_layers"] = 2;
  config["dtype"] = "bfloat16";
  return config;
}

inline ModelSpec spec_of(const Json& config) { return read_model_spec(config, "config.json"); }

// Every tensor of the model in F32, with one tensor per expert.
inline StoredMap make_plain(const ModelSpec& spec, uint64_t seed) {
  PhiloxStream random(seed, 1);
  std::vector<ParameterInfo> infos = list_parameters(spec);
  for (ParameterInfo& info : infos) complete_parts(info);
  StoredMap map;
  for (const TensorSource& source : list_tensor_sources(infos)) {
    std::vector<float> values(
        static_cast<size_t>(tensor::count_elements(tensor::whole_box(source.shape))));
    for (float& value : values) value = static_cast<float>(random.next_normal());
    map[source.name] = store_floats(source.shape, values);
  }
  return map;
}

inline bool is_projection(const std::string& name) {
  return name.ends_with("_proj.weight") && !name.ends_with("eh_proj.weight");
}

// The value of an e4m3 number, by the definition of the format.
inline float e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double magnitude = exponent == 0 ? mantissa / 8.0 * std::pow(2, -6)
                                         : (1 + mantissa / 8.0) * std::pow(2, exponent - 7);
  return static_cast<float>((bits & 0x80) != 0 ? -magnitude : magnitude);
}

struct Fp8Form {
  int64_t block_rows = 128, block_columns = 128;  // 0: the whole dimension
  std::string suffix = "_scale_inv";
  tensor::DType scale_dtype = tensor::DType::kF32;
};

// Replaces every projection by random FP8 values. Returns them with their scales; `plain` gets the
// products.
inline StoredMap quantise_projections(StoredMap& plain, const Fp8Form& form, uint64_t seed) {
  PhiloxStream random(seed, 2);
  StoredMap fp8;
  for (auto& [name, tensor] : plain) {
    if (!is_projection(name)) {
      fp8[name] = tensor;
      continue;
    }
    const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
    const int64_t high = form.block_rows > 0 ? form.block_rows : rows;
    const int64_t wide = form.block_columns > 0 ? form.block_columns : columns;
    const int64_t grid_rows = (rows + high - 1) / high, grid_columns = (columns + wide - 1) / wide;
    std::vector<float> scales(static_cast<size_t>(grid_rows * grid_columns));
    // Scales are exact in bf16.
    for (float& scale : scales)
      scale = std::ldexp(static_cast<float>(128 + random.next_below(128)), -14);
    std::string bits(static_cast<size_t>(rows * columns), '\0');
    std::vector<float> products(bits.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        auto value = static_cast<uint8_t>(random.next_below(256));
        if ((value & 0x7F) == 0x7F) --value;  // NaN
        const auto at = static_cast<size_t>(i * columns + j);
        bits[at] = static_cast<char>(value);
        products[at] =
            e4m3_value(value) * scales[static_cast<size_t>(i / high * grid_columns + j / wide)];
      }
    }
    tensor = store_floats({rows, columns}, products);
    fp8[name] = {tensor::DType::kF8E4M3, {rows, columns}, bits};
    fp8[name + form.suffix] = store_floats({grid_rows, grid_columns}, scales, form.scale_dtype);
  }
  return fp8;
}

// Stacks the experts of every layer as transformers 5 does: gate_up_proj and down_proj.
inline StoredMap stack_experts(const StoredMap& per_expert) {
  StoredMap stacked;
  for (const auto& [name, tensor] : per_expert) {
    const auto at = name.find(".experts.");
    if (at == std::string::npos) {
      stacked[name] = tensor;
      continue;
    }
    const std::string prefix = name.substr(0, at + 9);
    const bool is_down = name.ends_with(".down_proj.weight");
    if (!name.starts_with(prefix + "0.") || name.ends_with(".up_proj.weight")) continue;
    StoredBytes& out = stacked[prefix + (is_down ? "down_proj" : "gate_up_proj")];
    int64_t experts = 0;
    for (;; ++experts) {
      const std::string expert = prefix + std::to_string(experts) + ".";
      if (!per_expert.contains(expert + "down_proj.weight")) break;
      if (is_down) {
        out.bytes += per_expert.at(expert + "down_proj.weight").bytes;
      } else {
        out.bytes += per_expert.at(expert + "gate_proj.weight").bytes;
        out.bytes += per_expert.at(expert + "up_proj.weight").bytes;
      }
    }
    out.dtype = tensor.dtype;
    out.shape = {experts, tensor.shape[0] * (is_down ? 1 : 2), tensor.shape[1]};
  }
  return stacked;
}

inline void write_stored_file(const std::string& path, const StoredMap& map) {
  std::vector<io::TensorEntry> entries;
  for (const auto& [name, tensor] : map) entries.push_back({name, tensor.dtype, tensor.shape});
  io::sort_entries(entries);
  io::SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const auto& entry : entries) {
    const std::string& bytes = map.at(entry.name).bytes;
    writer.write(bytes.data(), bytes.size());
  }
  writer.finish();
}

inline std::string write_stored(const io::TempDir& dir, const std::string& name, const Json& config,
                                const StoredMap& map) {
  std::filesystem::create_directory(dir.file(name));
  dir.put(name + "/config.json", config.dump(2));
  write_stored_file(dir.file(name + "/model.safetensors"), map);
  return dir.file(name);
}

// All values of a rank's parameters, loaded from a folder.
inline std::vector<float> load_values(const std::string& directory, const ModelSpec& spec,
                                      const std::vector<ParameterInfo>& infos,
                                      const Layout* layout = nullptr) {
  ParameterStore store(infos, {}, false);
  load_hf_weights(store, spec, io::HfFolder::open(directory), {}, layout);
  std::vector<float> all;
  for (const ParameterInfo& info : store.infos()) {
    std::vector<float> values(static_cast<size_t>(info.num_elements()));
    store.read_weights(info, 0, values.data(), info.num_elements());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline std::vector<float> load_values(const std::string& directory, const Json& config) {
  const ModelSpec spec = spec_of(config);
  return load_values(directory, spec, list_parameters(spec));
}

inline Json fp8_config() {
  return Json::parse(
      R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
          "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "no.such"]})");
}

// The quantization config of GLM-4.5-FP8.
inline Json compressed_config(const std::string& strategy) {
  Json config = Json::parse(
      R"({"config_groups": {"group_0": {
            "input_activations": {"dynamic": true, "num_bits": 8, "strategy": "token",
                                  "symmetric": true, "type": "float"},
            "output_activations": null, "targets": ["Linear"],
            "weights": {"actorder": null, "block_structure": null, "dynamic": false,
                        "group_size": null, "num_bits": 8, "observer": "minmax",
                        "observer_kwargs": {}, "strategy": "channel", "symmetric": true,
                        "type": "float"}}},
          "format": "float-quantized", "global_compression_ratio": null, "ignore": ["lm_head"],
          "kv_cache_scheme": null, "quant_method": "compressed-tensors",
          "quantization_status": "compressed"})");
  Json& weights = config["config_groups"]["group_0"]["weights"];
  weights["strategy"] = strategy;
  if (strategy == "block") weights["block_structure"] = {128, 64};
  return config;
}

}  // namespace slimexx::model

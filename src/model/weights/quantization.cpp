#include "slimexx/model/quantization.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

constexpr int64_t kMaxBlock = 1 << 20;

std::string text_of(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40);
}

// Reads one object of quantization_config; every fault names its path.
class QuantizationReader {
 public:
  QuantizationReader(const Json& object, std::string path, const std::string& where)
      : object_(object), path_(std::move(path)), where_(where) {
    if (!object.is_object()) fail(fmt::format("\"{}\" must be an object", path_));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(
        ErrorCode::kInput, what,
        "supported: FP8 (e4m3) weights with a scale per block, channel or tensor; otherwise use "
        "the unquantised checkpoint; if the weights are not quantised, remove the entry",
        where_);
  }
  [[noreturn]] void refuse(const std::string& key, const Json& value) const {
    fail(fmt::format("\"{}\" has \"{}\": {}, which is not supported", path_, key, text_of(value)));
  }
  const Json* find(const std::string& key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  // Refuses a value that is not in `taken`. The key may be absent.
  void check(const std::string& key, const std::vector<Json>& taken) const {
    const Json* value = find(key);
    if (value == nullptr) return;
    for (const Json& one : taken)
      if (*value == one) return;
    refuse(key, *value);
  }
  const Json& require(const std::string& key) const {
    const Json* value = find(key);
    if (value == nullptr) fail(fmt::format("\"{}\" lacks \"{}\"", path_, key));
    return *value;
  }
  bool is_true(const std::string& key) const {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean())
      fail(fmt::format("\"{}\" has \"{}\": {}, but it must be true or false", path_, key,
                       text_of(*value)));
    return value != nullptr && value->get<bool>();
  }
  Quantization read_blocks(const std::string& key, const std::string& scale_suffix) const {
    const Json& block = require(key);
    const auto size = [&](size_t i) {
      if (!block.is_array() || block.size() != 2 || !block[i].is_number_integer() || block[i] < 1 ||
          block[i] > kMaxBlock)
        fail(fmt::format(
            "\"{}\" has \"{}\": {}, but it must be the two sizes of a block, such as [128, 128]",
            path_, key, text_of(block)));
      return block[i].get<int64_t>();
    };
    return {ScaleKind::kBlock, size(0), size(1), scale_suffix};
  }

 private:
  const Json& object_;
  std::string path_;
  const std::string& where_;
};

// DeepSeek-V3 and later: X.weight is multiplied by X.weight_scale_inv. Without blocks there is one
// scale per tensor, X.weight_scale.
Quantization read_fp8(const QuantizationReader& reader) {
  reader.check("fmt", {"e4m3"});
  reader.check("activation_scheme", {"dynamic"});
  reader.check("scale_fmt", {"ue8m0", "float"});  // scales are stored as F32 either way
  if (reader.find("weight_block_size") == nullptr) return {ScaleKind::kTensor, 0, 0, "_scale"};
  return reader.read_blocks("weight_block_size", "_scale_inv");
}

// The GLM-4.5-FP8 format: X.weight is multiplied by X.weight_scale.
Quantization read_compressed_weights(const QuantizationReader& weights) {
  weights.check("type", {"float"});
  weights.check("num_bits", {8});
  weights.check("symmetric", {true});
  weights.check("dynamic", {false});
  const std::string suffix = "_scale";
  const Json& strategy = weights.require("strategy");
  if (strategy == "block") return weights.read_blocks("block_structure", suffix);
  if (strategy == "channel") return {ScaleKind::kChannel, 0, 0, suffix};
  if (strategy == "tensor") return {ScaleKind::kTensor, 0, 0, suffix};
  weights.refuse("strategy", strategy);
}

Quantization read_compressed(const QuantizationReader& reader, const std::string& path,
                             const std::string& where) {
  reader.check("format", {"float-quantized"});
  reader.check("quantization_status", {"compressed"});
  if (const Json* sparsity = reader.find("sparsity_config"); sparsity != nullptr)
    QuantizationReader(*sparsity, path + ".sparsity_config", where).check("format", {"dense"});
  const Json& groups = reader.require("config_groups");
  if (!groups.is_object() || groups.empty()) reader.refuse("config_groups", groups);
  std::optional<Quantization> common;
  for (const auto& [name, group] : groups.items()) {
    const std::string group_path = fmt::format("{}.config_groups.{}", path, name);
    const QuantizationReader group_reader(group, group_path, where);
    group_reader.check("format", {"float-quantized"});
    const Json& weights = group_reader.require("weights");
    const Quantization own =
        read_compressed_weights(QuantizationReader(weights, group_path + ".weights", where));
    // The targets of a group are not read, so all groups must have the same format.
    if (common && (common->kind != own.kind || common->block_rows != own.block_rows ||
                   common->block_columns != own.block_columns))
      reader.fail(
          fmt::format("\"{}\" has groups with different kinds of scales: not supported", path));
    common = own;
  }
  return *common;
}

}  // namespace

int64_t Quantization::rows_of_scale(int64_t rows) const {
  if (kind == ScaleKind::kBlock) return block_rows;
  return kind == ScaleKind::kChannel ? 1 : rows;
}

int64_t Quantization::columns_of_scale(int64_t columns) const {
  return kind == ScaleKind::kBlock ? block_columns : columns;
}

std::string Quantization::describe() const {
  if (kind == ScaleKind::kBlock)
    return fmt::format("one scale per block of {}x{}", block_rows, block_columns);
  return kind == ScaleKind::kChannel ? "one scale per row" : "one scale per tensor";
}

std::optional<Quantization> read_quantization(const Json& config, const std::string& where) {
  const std::string path = "quantization_config";
  const auto entry = config.find(path);
  if (entry == config.end() || entry->is_null()) return std::nullopt;
  const QuantizationReader reader(*entry, path, where);
  if (entry->empty()) return std::nullopt;
  const Json* named = reader.find("quant_method");
  const std::string method = named == nullptr     ? "unnamed"
                             : named->is_string() ? named->get<std::string>()
                                                  : text_of(*named);
  if (method == "fp8") return read_fp8(reader);
  if (method == "compressed-tensors") return read_compressed(reader, path, where);
  if (method == "bitsandbytes" && !reader.is_true("load_in_4bit") &&
      !reader.is_true("load_in_8bit"))
    return std::nullopt;
  reader.fail(fmt::format("\"{}\" says that the weights are quantised ({})", path, method));
}

}  // namespace slimexx::model

#include "io/fp8/fp8_config.h"

#include <nlohmann/json.hpp>

namespace slimexx::io {
namespace {

// One entry of the compressed-tensors configuration: FP8 values with scales by `strategy`.
Json compressed_values(const char* strategy, bool is_dynamic, Json observer) {
  return {{"actorder", nullptr},   {"block_structure", nullptr},
          {"dynamic", is_dynamic}, {"group_size", nullptr},
          {"num_bits", 8},         {"observer", std::move(observer)},
          {"symmetric", true},     {"observer_kwargs", Json::object()},
          {"strategy", strategy},  {"type", "float"}};
}

}  // namespace

Json fp8_quantization_config(const Fp8Options& options, const std::vector<std::string>& kept) {
  if (options.strategy == Fp8Strategy::kChannel) {
    const Json group = {{"input_activations", compressed_values("token", true, nullptr)},
                        {"output_activations", nullptr},
                        {"targets", {"Linear"}},
                        {"weights", compressed_values("channel", false, "minmax")}};
    return {{"config_groups", {{"group_0", group}}},
            {"format", "float-quantized"},
            {"ignore", kept},
            {"quant_method", "compressed-tensors"},
            {"quantization_status", "compressed"}};
  }
  Json config = {{"activation_scheme", "dynamic"}, {"fmt", "e4m3"}, {"quant_method", "fp8"}};
  if (options.strategy == Fp8Strategy::kBlock) {
    config["weight_block_size"] = {options.block_rows, options.block_columns};
    if (options.scale_rule == tensor::F8ScaleRule::kPowerOfTwo) config["scale_fmt"] = "ue8m0";
  }
  config["modules_to_not_convert"] = kept;
  return config;
}

}  // namespace slimexx::io

// Human-readable description of the model read from a config.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/model/spec.h"

namespace slimexx::model {

struct PartCount {
  std::string name;  // "attention", "experts", ...
  int64_t elements = 0;
};
struct ParameterCounts {
  int64_t total = 0;   // every tensor that a checkpoint holds
  int64_t active = 0;  // used per token: k of E experts, no MTP layer
  // Part of the total. Other tools do not count correction biases, since transformers keeps them as
  // buffers.
  int64_t correction_biases = 0;
  std::vector<PartCount> parts = {};  // add up to total; in order of first appearance
};
ParameterCounts count_parameters(const ModelSpec& spec);

// Kinds of a layer's blocks: attention is "gqa", "mla" or "sparse mla"; mlp is "dense" or "moe".
struct LayerNames {
  std::string attention, mlp;
};
LayerNames name_layer(const LayerSpec& layer);

// "128 dimensions, halves turn together, theta 1000000", and how the context is stretched.
std::string describe_rotary(const ModelSpec& spec);
// One line per group of equal layers: "layers 0, 4 to 45: ...".
std::vector<std::string> describe_layers(const ModelSpec& spec);

}  // namespace slimexx::model

// What was understood from a config.json, in numbers and lines for people.
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
  int64_t active = 0;  // those that one token meets: k of E experts, no MTP layer
  // Of the total; other counts leave them out, since transformers has them as buffers.
  int64_t correction_biases = 0;
  std::vector<PartCount> parts = {};  // add up to total; in order of first appearance
};
ParameterCounts count_parameters(const ModelSpec& spec);

// What a layer's two halves are: {"gqa", "mla", "sparse mla"} and {"dense", "moe"}.
struct LayerNames {
  std::string attention, mlp;
};
LayerNames name_layer(const LayerSpec& layer);

// "128 dimensions, halves turn together, theta 1000000", and how the context is stretched.
std::string describe_rotary(const ModelSpec& spec);
// One line for all layers that are alike: "layers 0, 4 to 45: ...".
std::vector<std::string> describe_layers(const ModelSpec& spec);

}  // namespace slimexx::model

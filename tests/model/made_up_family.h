// Parameters of a made-up family with every disk layout that a part can describe: interleaved rows
// of two halves, stacked sections, columns of one tensor in two parameters, swapped halves, one
// tensor per expert, and all experts in one tensor.
#pragma once
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/tensor/box.h"

namespace slimexx::model {

inline constexpr int64_t kMadeUpExperts = 4;

inline std::vector<ParameterInfo> made_up_parameters() {
  const auto rows = [](const char* name, int64_t n, int64_t columns, int64_t at) {
    return HfPart{.name = name, .shape = {n, columns}, .at = {at, 0}};
  };
  std::vector<ParameterInfo> infos;
  infos.push_back({.name = "qkv",
                   .shape = {16, 6},
                   .shards = {{.axis = 0, .sections = {{8, 2}, {4, 2}, {4, 2}}}},
                   .parts = {rows("q", 8, 6, 0), rows("k", 4, 6, 8), rows("v", 4, 6, 12)}});
  infos.push_back(
      {.name = "o", .shape = {6, 8}, .shards = {{.axis = 1}}, .parts = {rows("o", 6, 8, 0)}});
  HfPart first{.name = "pairs",
               .shape = {8, 6},
               .at = {0, 0},
               .begin = {0, 0},
               .size = {4, 6},
               .row_step = 2};
  HfPart second = first;
  second.at[0] = 1, second.begin[0] = 4;
  infos.push_back(
      {.name = "pairs", .shape = {8, 6}, .shards = {{.axis = 0}}, .parts = {first, second}});
  infos.push_back({.name = "left",
                   .shape = {4, 4},
                   .parts = {{.name = "wide", .shape = {4, 10}, .begin = {0, 0}, .size = {4, 4}}}});
  infos.push_back({.name = "right",
                   .shape = {4, 6},
                   .shards = {{.axis = 1}},
                   .parts = {{.name = "wide", .shape = {4, 10}, .begin = {0, 4}, .size = {4, 6}}}});
  infos.push_back(
      {.name = "bias",
       .shape = {8},
       .decayed = false,
       .dtype = tensor::DType::kF32,
       .shards = {{.axis = 0}},
       .parts = {{.name = "bias", .shape = {8}, .at = {4}, .begin = {0}, .size = {4}},
                 {.name = "bias", .shape = {8}, .at = {0}, .begin = {4}, .size = {4}}}});
  infos.push_back(
      {.name = "frozen", .shape = {3, 5}, .trainable = false, .parts = {rows("frozen", 3, 5, 0)}});
  ParameterInfo up{.name = "experts.up",
                   .shape = {kMadeUpExperts, 6, 5},
                   .reduce_group = ReduceGroup::kExpert,
                   .shards = {{.axis = 0, .dim = GridDim::kExpert}, {.axis = 1}}};
  for (int64_t e = 0; e < kMadeUpExperts; ++e)
    up.parts.push_back(
        {.name = "expert" + std::to_string(e) + ".up", .shape = {6, 5}, .at = {e, 0, 0}});
  infos.push_back(up);
  infos.push_back({.name = "experts.down",
                   .shape = {kMadeUpExperts, 5, 6},
                   .reduce_group = ReduceGroup::kExpert,
                   .shards = {{.axis = 0, .dim = GridDim::kExpert}, {.axis = 2}},
                   .parts = {{.name = "experts.down", .shape = {kMadeUpExperts, 5, 6}}}});
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].id = static_cast<ParameterId>(i);
    complete_parts(infos[i]);
  }
  return infos;
}

// made_up_parameters for an engine with `num_copies` physical experts.
inline std::vector<ParameterInfo> made_up_parameters(int64_t num_copies) {
  std::vector<ParameterInfo> infos = made_up_parameters();
  for (ParameterInfo& info : infos)
    for (Shard& shard : info.shards)
      if (shard.dim == GridDim::kExpert) shard.num_copies = num_copies;
  return infos;
}

// The tensors on disk: every element of the model is a different bf16 number.
using MadeUpTensors = std::map<std::string, std::vector<float>>;
inline MadeUpTensors made_up_tensors() {
  MadeUpTensors tensors;
  uint16_t bits = 0x3000;
  for (const auto& source : list_tensor_sources(made_up_parameters())) {
    const auto n = static_cast<size_t>(tensor::count_elements(tensor::whole_box(source.shape)));
    for (size_t i = 0; i < n; ++i) tensors[source.name].push_back(tensor::bf16_to_f32(bits++));
  }
  return tensors;
}

inline std::vector<io::HfTensor> made_up_folder() {
  std::vector<io::HfTensor> list;
  for (const auto& source : list_tensor_sources(made_up_parameters())) {
    list.push_back(
        {source.name, tensor::DType::kBF16, source.shape,
         [values = made_up_tensors().at(source.name)](int64_t begin, int64_t end, void* out) {
           tensor::convert_elements(tensor::DType::kF32, values.data() + begin,
                                    tensor::DType::kBF16, out, end - begin);
         }});
  }
  return list;
}

// The expected values of a parameter, computed without boxes.
inline std::vector<float> made_up_values(const ParameterInfo& info) {
  const MadeUpTensors tensors = made_up_tensors();
  std::vector<float> values(static_cast<size_t>(info.num_elements()));
  const auto own = tensor::strides_of(info.shape);
  for (const HfPart& part : info.parts) {
    const auto disk = tensor::strides_of(part.shape), box = tensor::strides_of(part.size);
    const size_t dims = part.size.size(), leading = info.shape.size() - dims;
    for (int64_t i = 0; i < tensor::count_elements(tensor::whole_box(part.size)); ++i) {
      int64_t from = 0, to = 0;
      for (size_t d = 0; d < leading; ++d) to += part.at[d] * own[d];
      for (size_t d = 0; d < dims; ++d) {
        const int64_t index = i / box[d] % part.size[d];
        const bool is_row = dims == 1 || d == dims - 2;
        from += (part.begin[d] + index) * disk[d];
        to += (part.at[leading + d] + index * (is_row ? part.row_step : 1)) * own[leading + d];
      }
      values[static_cast<size_t>(to)] = tensors.at(part.name)[static_cast<size_t>(from)];
    }
  }
  return values;
}

inline std::vector<float> values_of(const ParameterStore& store, const ParameterInfo& info) {
  std::vector<float> values(static_cast<size_t>(info.num_elements()));
  store.read_weights(info, 0, values.data(), info.num_elements());
  return values;
}

}  // namespace slimexx::model

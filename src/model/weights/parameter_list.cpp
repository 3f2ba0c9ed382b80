#include "model/weights/parameter_list.h"

#include <utility>

namespace slimexx::model {

ParameterId ParameterList::add(ParameterInfo info) {
  if (!keeps_parts) info.parts = {};
  infos.push_back(std::move(info));
  return static_cast<ParameterId>(infos.size() - 1);
}

ParameterId ParameterList::add_weight(const std::string& name, const std::vector<HfRows>& parts,
                                      int64_t columns, std::vector<Shard> shards, InitKind init) {
  ParameterInfo info{
      .name = name, .shape = {0, columns}, .shards = std::move(shards), .init = init};
  for (const HfRows& part : parts) {
    info.parts.push_back(
        {.name = part.name, .shape = {part.rows, columns}, .at = {info.shape[0], 0}});
    info.shape[0] += part.rows;
  }
  return add(std::move(info));
}

ParameterId ParameterList::add_linear(const std::string& name, const std::vector<HfRows>& parts,
                                      int64_t columns, std::vector<Shard> shards, InitKind init) {
  const ParameterId id = add_weight(name, parts, columns, std::move(shards), init);
  infos.back().is_linear = true;
  return id;
}

ParameterId ParameterList::add_vector(const std::string& name, const std::vector<HfRows>& parts,
                                      InitKind init, std::vector<Shard> shards) {
  ParameterInfo info{.name = name,
                     .shape = {0},
                     .decayed = false,
                     .shards = std::move(shards),
                     .init = init,
                     .zero_before_backward = true};
  for (const HfRows& part : parts) {
    info.parts.push_back({.name = part.name, .shape = {part.rows}, .at = {info.shape[0]}});
    info.shape[0] += part.rows;
  }
  return add(std::move(info));
}

ParameterId ParameterList::add_bias_if(bool wanted, const std::string& name,
                                       const std::vector<HfRows>& parts,
                                       std::vector<Shard> shards) {
  return wanted ? add_vector(name, parts, InitKind::kZeros, std::move(shards)) : kNoParameter;
}

ParameterId ParameterList::add_norm_if(bool wanted, const std::string& name,
                                       const std::string& hf_name, int64_t size) {
  return wanted ? add_vector(name, {{hf_name, size}}, InitKind::kOnes, {}) : kNoParameter;
}

}  // namespace slimexx::model

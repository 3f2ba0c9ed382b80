// Parameters that a grid shards by rows, columns and heads, on 2, 4 or 6 ranks.
#pragma once
#include <vector>

#include "slimexx/model/boxes.h"

namespace slimexx::model {

// Two matrices sharded by rows or columns; query heads with two key heads; and a replicated norm.
inline std::vector<ParameterInfo> cut_parameters(int axis_of_up, int axis_of_down) {
  const auto matrix = [](const char* name, int axis) {
    return ParameterInfo{.name = name,
                         .shape = {12, 12},
                         .shards = {{.axis = axis}},
                         .parts = {{.name = name, .shape = {12, 12}}}};
  };
  std::vector<ParameterInfo> infos{matrix("up", axis_of_up), matrix("down", axis_of_down)};
  infos.push_back({.name = "qk",
                   .shape = {28, 4},
                   .shards = {{.axis = 0, .sections = {{24, 2}, {4, 2}}}},
                   .parts = {{.name = "q", .shape = {24, 4}, .at = {0, 0}},
                             {.name = "k", .shape = {4, 4}, .at = {24, 0}}}});
  infos.push_back({.name = "norm", .shape = {12}, .parts = {{.name = "norm", .shape = {12}}}});
  for (size_t i = 0; i < infos.size(); ++i) {
    infos[i].id = static_cast<ParameterId>(i);
    complete_parts(infos[i]);
  }
  return infos;
}

}  // namespace slimexx::model

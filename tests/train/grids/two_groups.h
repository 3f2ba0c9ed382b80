// A made-up model with dense and expert parameters on a grid of ranks: two parameter groups, whose
// gradients are summed over different ranks.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>
#include <utility>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::train {

inline constexpr int kNumMadeUpLayers = 2;
// On four ranks: dense parameters are summed over all, experts over two pairs. Each pair has half
// of the experts and a copy of the bias.
inline constexpr dist::GridSizes kTwoPairs{.ep = 2};

inline model::ModelSpec made_up_spec() {
  model::ModelSpec spec;
  spec.layers.resize(kNumMadeUpLayers);
  return spec;
}

inline std::vector<model::ParameterInfo> made_up_parameters(const std::string& frozen = "") {
  std::vector<model::ParameterInfo> infos;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) -> auto& {
    model::ParameterInfo info{.name = name, .shape = shape, .decayed = shape.size() > 1};
    info.trainable = name != frozen;
    info.parts = {{.name = "model." + name, .shape = shape}};
    infos.push_back(std::move(info));
    return infos.back();
  };
  add("embedding.weight", {12, 10});
  for (int layer = 0; layer < kNumMadeUpLayers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer) + ".";
    add(prefix + "input_norm.weight", {10});
    add(prefix + "attention.weight", {14, 10});
    auto& experts = add(prefix + "experts.weight", {4, 6, 10});
    experts.reduce_group = model::ReduceGroup::kExpert;
    experts.shards = {{.axis = 0, .dim = model::GridDim::kExpert}};
    add(prefix + "experts.bias", {30}).reduce_group = model::ReduceGroup::kExpert;
  }
  add("final_norm.weight", {10});
  return infos;
}

// The parameters on a rank of the grid.
inline std::vector<model::ParameterInfo> parameters_of_rank(const dist::GridShape& grid, int rank,
                                                            const std::string& frozen = "") {
  return *model::make_layout({made_up_parameters(frozen)}, grid).ranks[static_cast<size_t>(rank)];
}

// Gives the value of element `i` of a tensor on disk.
using ValueOf = std::function<float(const std::string& tensor, int64_t i)>;

inline float starting_weight(const std::string& tensor, int64_t i) {
  return static_cast<float>(
      std::sin(0.7 * static_cast<double>(i) + static_cast<double>(tensor.size())));
}
// The contribution of one rank to the sum of a gradient.
inline float gradient_share(const std::string& tensor, int64_t i, int64_t step, int rank) {
  return static_cast<float>(std::sin(1.3 * static_cast<double>(i) + static_cast<double>(step) +
                                     0.1 * static_cast<double>(tensor.size()) + 2.0 * rank));
}
// The sum in rank order, for a kTwoPairs grid of four ranks.
inline float gradient_sum(const std::string& tensor, int64_t i, int64_t step) {
  const int num_ranks = tensor.find("experts") != std::string::npos ? 2 : 4;
  float sum = gradient_share(tensor, i, step, 0);
  for (int rank = 1; rank < num_ranks; ++rank) sum += gradient_share(tensor, i, step, rank);
  return sum;
}

inline void fill(const tensor::Tensor& parameter, const model::ParameterInfo& info,
                 const ValueOf& value) {
  for (const model::ElementRun& run : model::list_runs(info))
    for (int64_t i = 0; i < run.size; ++i)
      parameter.f32()[run.in_parameter + i] = value(info.parts[run.part].name, run.on_disk + i);
}
inline void fill_weights(model::ParameterStore& store) {
  for (const auto& info : store.infos()) fill(store.weight(info.id), info, starting_weight);
}
inline void fill_gradients(model::ParameterStore& store,
                           const std::function<ValueOf(const model::ParameterInfo&)>& value) {
  for (const auto& info : store.infos())
    if (info.trainable) fill(store.gradient(info.id), info, value(info));
}
// Sets this rank's contributions.
inline void fill_gradient_shares(model::ParameterStore& store, const dist::GridPosition& position,
                                 int64_t step) {
  fill_gradients(store, [&](const model::ParameterInfo& info) -> ValueOf {
    const bool is_expert = info.reduce_group == model::ReduceGroup::kExpert;
    return
        [step, rank = is_expert ? position.edp : position.dp](
            const std::string& tensor, int64_t i) { return gradient_share(tensor, i, step, rank); };
  });
}
// Sets the whole sum on the first rank of each group, and zeros on the others.
inline void fill_gradient_sums(model::ParameterStore& store, const dist::GridPosition& position,
                               int64_t step) {
  fill_gradients(store, [&](const model::ParameterInfo& info) -> ValueOf {
    const bool is_expert = info.reduce_group == model::ReduceGroup::kExpert;
    const bool is_first = (is_expert ? position.edp : position.dp) == 0;
    return [step, is_first](const std::string& tensor, int64_t i) {
      return is_first ? gradient_sum(tensor, i, step) : 0.0f;
    };
  });
}

// "tensor[i]: ..." for the first element that differs from `expected`, a store of the whole model.
inline std::string first_different_weight(const model::ParameterStore& store,
                                          const model::ParameterStore& expected) {
  std::map<std::string, std::vector<float>> values;
  for (const auto& info : expected.infos()) {
    const float* first = expected.weight(info.id).f32();
    values[info.parts[0].name] = {first, first + info.num_elements()};
  }
  for (const auto& info : store.infos()) {
    for (const model::ElementRun& run : model::list_runs(info)) {
      const std::string& name = info.parts[run.part].name;
      for (int64_t i = 0; i < run.size; ++i) {
        const float actual = store.weight(info.id).f32()[run.in_parameter + i];
        const float wanted = values.at(name)[static_cast<size_t>(run.on_disk + i)];
        if (actual != wanted)
          return name + "[" + std::to_string(run.on_disk + i) + "]: " + std::to_string(actual) +
                 " and " + std::to_string(wanted);
      }
    }
  }
  return "";
}

}  // namespace slimexx::train

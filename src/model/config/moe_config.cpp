// Reads the keys of config.json for routing and experts.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/config/config_reader.h"

namespace slimexx::model {

int64_t ConfigReader::count(const std::string& key, int64_t fallback, int64_t max) const {
  const auto it = config_.find(key);
  if (it == config_.end() || it->is_null()) return fallback;
  const int64_t value = json_int(config_, key, where_);
  if (value < 0 || value > max)
    fail(fmt::format("\"{}\" is {}, but must be from 0 to {}", key, value, max));
  return value;
}

std::vector<int64_t> ConfigReader::list_layers(const std::string& key, int64_t num_layers) const {
  const auto it = config_.find(key);
  if (it == config_.end() || it->is_null()) return {};
  if (!it->is_array()) fail(fmt::format("\"{}\" must be a list of layers", key));
  std::vector<int64_t> layers;
  for (const Json& value : *it) {
    if (!value.is_number_integer() || value < 0 || value >= num_layers)
      fail(fmt::format("\"{}\" holds {}, but layers are numbered 0 to {}", key,
                       shorten(value.dump(-1, ' ', true, Json::error_handler_t::replace)),
                       num_layers - 1));
    layers.push_back(value.get<int64_t>());
  }
  return layers;
}

void ConfigReader::check_text(const std::string& key, const std::string& wanted) const {
  const std::string value = text(key, wanted);
  if (value != wanted)
    fail(fmt::format("\"{}\" is \"{}\": not supported", key, shorten(value)),
         "supported: " + wanted);
}

// An explicit null means no groups; a missing key means `fallback`.
int64_t ConfigReader::count_groups(const char* key, int64_t fallback) const {
  return config_.contains(key) ? optional_size(key).value_or(1) : fallback;
}

std::string ConfigReader::group_text(const char* key, int64_t value) const {
  return fmt::format("{} ({}{})", key, value,
                     config_.contains(key) ? "" : ", this family's default");
}

ops::RouterRule ConfigReader::read_router(const std::string& num_experts_key,
                                          ops::RouterRule rule) const {
  rule.num_experts = size(num_experts_key, 1 << 16);
  rule.top_k = size("num_experts_per_tok", rule.num_experts);
  if (rule.num_experts % rule.num_groups != 0)
    fail(fmt::format("{} ({}) is not a multiple of {}", num_experts_key, rule.num_experts,
                     group_text("n_group", rule.num_groups)));
  const int64_t group_size = rule.num_experts / rule.num_groups;
  if (rule.kept_groups > rule.num_groups || rule.top_k > rule.kept_groups * group_size)
    fail(fmt::format("{} experts per token do not fit into {} groups of {}", rule.top_k,
                     group_text("topk_group", rule.kept_groups), group_size));
  if (rule.num_groups > 1 && group_size < 2)
    fail(fmt::format("{} leaves one expert per group, but a group's score is the sum of two",
                     group_text("n_group", rule.num_groups)));
  return rule;
}

std::vector<bool> ConfigReader::read_sparse_layers(int64_t num_layers,
                                                   int64_t num_dense_layers) const {
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  const auto types = config_.find("mlp_layer_types");
  if (types == config_.end() || types->is_null()) {
    const int64_t first = count("first_k_dense_replace", num_dense_layers, 1 << 16);
    const int64_t frequency = optional_size("moe_layer_freq").value_or(1);
    for (int64_t i = first; i < num_layers; ++i)
      sparse[static_cast<size_t>(i)] = i % frequency == 0;
    return sparse;
  }
  if (!types->is_array() || types->size() != sparse.size())
    fail(fmt::format("\"mlp_layer_types\" must be a list of {} layer kinds", num_layers));
  for (size_t i = 0; i < sparse.size(); ++i) {
    if ((*types)[i] != "sparse" && (*types)[i] != "dense")
      fail(fmt::format("mlp_layer_types lists an unsupported kind for layer {}", i),
           "supported: \"dense\", \"sparse\"");
    sparse[i] = (*types)[i] == "sparse";
  }
  return sparse;
}

void ConfigReader::read_sigmoid_experts(ModelSpec& spec, const ExpertDefaults& defaults) const {
  for (const char* key : {"routed_scaling_factor", "n_shared_experts", "first_k_dense_replace"})
    refuse_null(key);
  check_text("scoring_func", "sigmoid");
  check_text("topk_method", "noaux_tc");
  const int64_t num_groups = count_groups("n_group", defaults.num_groups);
  if (num_groups > 1 || has("n_group")) refuse_null("topk_group");
  MoeMlpSpec experts{
      .hidden_size = spec.hidden_size,
      .intermediate_size = size("moe_intermediate_size", 1 << 24),
      .router = read_router("n_routed_experts",
                            {.score = ops::RouterScore::kSigmoid,
                             .num_groups = num_groups,
                             .kept_groups = count_groups("topk_group", defaults.kept_groups),
                             .normalized = flag("norm_topk_prob", true),
                             .epsilon = 1e-20f,
                             .scaling_factor = static_cast<float>(positive_number(
                                 "routed_scaling_factor", defaults.scaling_factor))}),
      .has_correction_bias = true};
  const int64_t shared = count("n_shared_experts", 1, 1 << 10);
  if (shared > 0)
    experts.shared = DenseMlpSpec{.hidden_size = spec.hidden_size,
                                  .intermediate_size = shared * experts.intermediate_size};
  const std::vector<bool> sparse = read_sparse_layers(spec.num_layers(), defaults.num_dense_layers);
  for (size_t i = 0; i < sparse.size(); ++i)
    if (sparse[i]) spec.layers[i].mlp = experts;
  LayerSpec mtp = spec.layers.back();
  mtp.mlp = experts;
  spec.mtp.assign(static_cast<size_t>(count("num_nextn_predict_layers", 0, 16)), {.layer = mtp});
}

}  // namespace slimexx::model

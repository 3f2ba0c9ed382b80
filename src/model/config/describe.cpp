#include "slimexx/model/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

// The layer number in a parameter's name: 3 in "layers.3.", or -1 without one.
int64_t layer_of(const std::string& name) {
  constexpr std::string_view kPrefix = "layers.";
  return name.starts_with(kPrefix) ? std::stoll(name.substr(kPrefix.size())) : -1;
}

std::string part_of(const ParameterInfo& info, int64_t num_layers) {
  const auto has = [&](std::string_view text) { return info.name.find(text) != std::string::npos; };
  if (layer_of(info.name) >= num_layers) return "multi-token prediction";
  if (has("mlp.experts.")) return "experts";
  if (has("mlp.router.")) return "routers";
  if (has("mlp.shared_experts.")) return "shared experts";
  if (has("attention.indexer.")) return "indexers";
  if (has("attention.")) return "attention";
  if (has("mlp.")) return "dense MLPs";
  if (has("norm")) return "norms";
  return has("lm_head") ? "head" : "embedding";
}

std::string describe(const LayerSpec& layer) {
  return std::visit([](const auto& block) { return describe(block); }, layer.attention) + "; " +
         std::visit([](const auto& block) { return describe(block); }, layer.mlp) +
         (layer.sandwich_norms ? "; sandwich norms" : "");
}

// Joins consecutive layers: "3 to 5, 7, 9 to 11".
std::string list_ranges(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text += end == i + 1 ? fmt::to_string(layers[i])
                         : fmt::format("{} to {}", layers[i], layers[end - 1]);
    i = end;
  }
  return text;
}

// Layers that share one line of the description.
struct LayerKind {
  std::string text;
  std::vector<int64_t> layers;
};
void add_layer(std::vector<LayerKind>& kinds, int64_t layer, const std::string& text) {
  auto found = std::ranges::find(kinds, text, &LayerKind::text);
  if (found == kinds.end()) found = kinds.insert(found, {text, {}});
  found->layers.push_back(layer);
}

std::string describe_scaling(const RopeSpec& rope) {
  const auto stretched = [&](const char* type) {
    return fmt::format(", {} x {} from {} positions", type, rope.factor,
                       rope.original_max_positions);
  };
  switch (rope.scaling) {
    case RopeScaling::kNone:
      return "";
    case RopeScaling::kLinear:
      return fmt::format(", linear x {}", rope.factor);
    case RopeScaling::kLlama3:
      return stretched("llama3") +
             fmt::format(", factors {} and {}", rope.low_freq_factor, rope.high_freq_factor);
    case RopeScaling::kYarn:
      return stretched("yarn") + fmt::format(", beta {} to {}, cosines and sines x {:.6g}",
                                             rope.beta_fast, rope.beta_slow, rope.table_scale);
  }
  return "";
}

// Number of a parameter's elements that one token uses.
int64_t active_elements(const ParameterInfo& info, const ModelSpec& spec) {
  const int64_t layer = layer_of(info.name);
  if (layer >= spec.num_layers()) return 0;
  if (info.name.find("mlp.experts.") == std::string::npos) return info.num_elements();
  const ops::RouterRule* rule = router(spec.layer(layer));
  return info.num_elements() / rule->num_experts * rule->top_k;
}

}  // namespace

ParameterCounts count_parameters(const ModelSpec& spec) {
  ParameterCounts counts;
  for (const ParameterInfo& info : list_parameters(spec)) {
    const std::string part = part_of(info, spec.num_layers());
    auto found = std::ranges::find(counts.parts, part, &PartCount::name);
    if (found == counts.parts.end()) found = counts.parts.insert(found, {part, 0});
    found->elements += info.num_elements();
    counts.total += info.num_elements();
    counts.active += active_elements(info, spec);
    if (info.name.ends_with("mlp.router.correction_bias"))
      counts.correction_biases += info.num_elements();
  }
  return counts;
}

LayerNames name_layer(const LayerSpec& layer) {
  const auto name = [](const auto& block) { return kind_name(block); };
  return {std::visit(name, layer.attention), std::visit(name, layer.mlp)};
}

std::string describe_rotary(const ModelSpec& spec) {
  const RopeSpec& rope = spec.rope;
  std::string text =
      fmt::format("{} dimensions, {}, theta {}{}", rope.rotary_dim,
                  rope.style == ops::RotaryStyle::kInterleaved ? "neighbours rotate together"
                                                               : "halves rotate together",
                  rope.theta, describe_scaling(rope));
  const double factor =
      std::visit([](const auto& block) { return score_factor(block); }, spec.layer(0).attention);
  if (factor != 1) text += fmt::format(", scores x {:.6g}", factor);
  return text;
}

std::vector<std::string> describe_layers(const ModelSpec& spec) {
  std::vector<LayerKind> kinds;
  for (int64_t i = 0; i < spec.num_layers(); ++i) add_layer(kinds, i, describe(spec.layer(i)));
  for (size_t i = 0; i < spec.mtp.size(); ++i)
    add_layer(kinds, spec.num_layers() + static_cast<int64_t>(i),
              "multi-token prediction, " + describe(spec.mtp[i].layer));
  std::vector<std::string> lines;
  for (const LayerKind& kind : kinds)
    lines.push_back(fmt::format("layer{} {}: {}", kind.layers.size() == 1 ? "" : "s",
                                list_ranges(kind.layers), kind.text));
  if (spec.num_missing_mtp > 0)
    lines.push_back(
        fmt::format("            config.json names {} MTP layers, but the weights hold {}",
                    std::ssize(spec.mtp) + spec.num_missing_mtp, spec.mtp.size()));
  return lines;
}

}  // namespace slimexx::model

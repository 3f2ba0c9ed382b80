#include "slimexx/model/describe.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

// The layer in a parameter's name, "layers.3.", or -1.
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

std::string describe(const GqaSpec& s) {
  return fmt::format("grouped-query attention, {} heads over {} of {}{}", s.num_heads,
                     s.num_kv_heads, s.head_dim, s.qk_norm ? ", QK-norm" : "");
}
std::string describe(const MlaSpec& s) {
  std::string text = fmt::format("latent attention, {} heads of {} + {} rotary, values {}, ",
                                 s.num_heads, s.nope_dim, s.rope_dim, s.value_dim);
  text += s.q_rank > 0 ? fmt::format("ranks {} and {}", s.q_rank, s.kv_rank)
                       : fmt::format("queries from the input, rank {}", s.kv_rank);
  if (s.indexer)
    text += fmt::format(", selects {} keys with {} index heads of {}", s.top_k,
                        s.indexer->num_heads, s.indexer->head_dim);
  else if (s.top_k > 0)
    text += ", uses the keys selected by the previous indexer";
  return text;
}
std::string describe(const DenseMlpSpec& s) {
  return fmt::format("dense MLP {}", s.intermediate_size);
}
std::string describe(const MoeMlpSpec& s) {
  const ops::RouterRule& r = s.router;
  std::string text =
      fmt::format("{} of {} experts {}, {}", r.top_k, r.num_experts, s.intermediate_size,
                  r.score == ops::RouterScore::kSoftmax ? "softmax" : "sigmoid");
  if (s.has_correction_bias) text += " with correction bias";
  if (r.kept_groups < r.num_groups)
    text += fmt::format(", {} of {} groups", r.kept_groups, r.num_groups);
  if (r.normalized) text += ", weights normalised";
  if (r.scaling_factor != 1) text += fmt::format(" x {}", r.scaling_factor);
  if (s.shared) text += fmt::format(", shared expert {}", s.shared->intermediate_size);
  return text;
}

std::string describe(const LayerSpec& layer) {
  return std::visit([](const auto& block) { return describe(block); }, layer.attention) + "; " +
         std::visit([](const auto& block) { return describe(block); }, layer.mlp) +
         (layer.sandwich_norms ? "; sandwich norms" : "");
}

// "3 to 5, 7, 9 to 11".
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

// Layers of which one line is true.
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

// Of a parameter's elements, those that one token meets.
int64_t active_elements(const ParameterInfo& info, const ModelSpec& spec) {
  const int64_t layer = layer_of(info.name);
  if (layer >= spec.num_layers()) return 0;
  if (info.name.find("mlp.experts.") == std::string::npos) return info.num_elements();
  const ops::RouterRule& router = std::get<MoeMlpSpec>(spec.layer(layer).mlp).router;
  return info.num_elements() / router.num_experts * router.top_k;
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
  const auto* latent = std::get_if<MlaSpec>(&layer.attention);
  const bool is_moe = std::holds_alternative<MoeMlpSpec>(layer.mlp);
  const char* attention = latent == nullptr ? "gqa" : latent->top_k > 0 ? "sparse mla" : "mla";
  return {attention, is_moe ? "moe" : "dense"};
}

std::string describe_rotary(const ModelSpec& spec) {
  const RopeSpec& rope = spec.rope;
  std::string text =
      fmt::format("{} dimensions, {}, theta {}{}", rope.rotary_dim,
                  rope.style == ops::RotaryStyle::kInterleaved ? "neighbours rotate together"
                                                               : "halves rotate together",
                  rope.theta, describe_scaling(rope));
  const auto* latent = std::get_if<MlaSpec>(&spec.layer(0).attention);
  if (latent != nullptr && latent->scale_factor != 1)
    text += fmt::format(", scores x {:.6g}", latent->scale_factor);
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

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
  std::string text =
      fmt::format("latent attention, {} heads of {} + {} rotary, values {}, ranks {} and {}",
                  s.num_heads, s.nope_dim, s.rope_dim, s.value_dim, s.q_rank, s.kv_rank);
  if (s.indexer)
    text += fmt::format(", sees {} keys by {} index heads of {}", s.top_k, s.indexer->num_heads,
                        s.indexer->head_dim);
  else if (s.top_k > 0)
    text += ", sees the keys of the indexer before it";
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
  if (s.shared) text += fmt::format(", shared expert {}", s.shared->intermediate_size);
  return text;
}

std::string describe(const LayerSpec& layer) {
  return std::visit([](const auto& block) { return describe(block); }, layer.attention) + "; " +
         std::visit([](const auto& block) { return describe(block); }, layer.mlp) +
         (layer.sandwich_norms ? "; sandwich norms" : "");
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

std::vector<std::string> describe_layers(const ModelSpec& spec) {
  std::vector<std::string> lines;
  for (int64_t first = 0; first < spec.num_layers();) {
    int64_t end = first + 1;
    while (end < spec.num_layers() && spec.layer(end) == spec.layer(first)) ++end;
    const std::string range = end == first + 1 ? fmt::format("layer {}", first)
                                               : fmt::format("layers {} to {}", first, end - 1);
    lines.push_back(range + ": " + describe(spec.layer(first)));
    first = end;
  }
  for (size_t i = 0; i < spec.mtp.size(); ++i)
    lines.push_back(fmt::format("layer {}: multi-token prediction, {}", spec.layers.size() + i,
                                describe(spec.mtp[i].layer)));
  return lines;
}

}  // namespace slimexx::model

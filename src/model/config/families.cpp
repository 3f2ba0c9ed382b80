#include "slimexx/model/families.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/config/config_reader.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

std::string supported_architectures() {
  std::string text;
  for (const auto& family : list_families()) {
    for (const auto& name : family.architectures) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

// Returns an empty string if the key is absent.
std::string read_model_type(const Json& config, const std::string& where) {
  const auto it = config.find("model_type");
  if (it == config.end()) return "";
  const std::string name = it->is_string() ? it->get<std::string>() : "";
  if (name.empty())
    throw Error(ErrorCode::kInput,
                fmt::format("\"model_type\" is {}, but must be the name of a family",
                            shorten(it->dump(-1, ' ', true, Json::error_handler_t::replace))),
                "write the family's name, such as \"qwen3\", or leave the key out", where);
  return name;
}

const Family& find_family(const Json& config, const std::string& where) {
  std::string architecture;
  const auto names = config.find("architectures");
  if (names != config.end() && names->is_array() && !names->empty() && (*names)[0].is_string()) {
    architecture = (*names)[0].get<std::string>();
  }
  const std::string model_type = read_model_type(config, where);
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::find(all.begin(), all.end(), one) != all.end();
  };
  const std::string supported = "supported: " + supported_architectures();
  for (const auto& family : list_families()) {
    if (architecture.empty() ? !has(family.model_types, model_type)
                             : !has(family.architectures, architecture)) {
      continue;
    }
    if (model_type.empty() || has(family.model_types, model_type)) return family;
    // Loaders use either model_type or architectures, so refuse a file in which the two differ. A
    // model may also have another family's architecture (Kimi-K2 has DeepSeek-V3's).
    const bool is_known = std::ranges::any_of(
        list_families(), [&](const Family& other) { return has(other.model_types, model_type); });
    throw Error(ErrorCode::kInput,
                fmt::format("architecture \"{}\" does not match model_type \"{}\"{}", architecture,
                            shorten(model_type), is_known ? "" : ", which is not supported"),
                is_known ? "fix the wrong one" : supported, where);
  }
  throw Error(ErrorCode::kInput,
              architecture.empty()
                  ? fmt::format("model_type \"{}\" is not supported", shorten(model_type))
                  : fmt::format("architecture \"{}\" is not supported", shorten(architecture)),
              supported, where);
}

// Each expert, and each head of latent attention, is a tensor or box of its own. Real models have
// far fewer; the limit stops a tiny config.json from asking for gigabytes of names.
constexpr int64_t kMaxNamedBoxes = 1 << 17;

void check_named_boxes(const ModelSpec& spec, const std::string& where) {
  int64_t boxes = 0;
  const auto add = [&](const auto& block) { boxes += count_named_boxes(block); };
  for (const LayerSpec& layer : spec.layers) {
    std::visit(add, layer.mlp);
    std::visit(add, layer.attention);
  }
  if (boxes <= kMaxNamedBoxes) return;
  throw Error(
      ErrorCode::kInput,
      fmt::format(
          "{} layers have {} experts and latent heads in total, but at most {} are supported",
          spec.num_layers(), boxes, kMaxNamedBoxes),
      "check num_hidden_layers, num_attention_heads and the number of experts", where);
}

void check_spec(const ModelSpec& spec, const std::string& where) {
  check_named_boxes(spec, where);
  const int64_t rotary_dim = spec.rope.rotary_dim;
  for (const LayerSpec& layer : spec.layers) {
    const int64_t head_dim =
        std::visit([](const auto& block) { return rotary_head_dim(block); }, layer.attention);
    if (rotary_dim >= 2 && rotary_dim % 2 == 0 && rotary_dim <= head_dim) continue;
    throw Error(ErrorCode::kInput,
                fmt::format("the rotary embedding rotates {} of {} dimensions, but the number must "
                            "be even and at least 2",
                            rotary_dim, head_dim),
                "check head_dim and partial_rotary_factor", where);
  }
}

}  // namespace

const std::vector<Family>& list_families() {
  static const std::vector<Family> families = {
      {"llama", {"LlamaForCausalLM"}, {"llama"}, read_llama_spec},
      {"qwen2", {"Qwen2ForCausalLM"}, {"qwen2"}, read_qwen2_spec},
      {"qwen3", {"Qwen3ForCausalLM"}, {"qwen3"}, read_qwen3_spec},
      {"qwen3_moe", {"Qwen3MoeForCausalLM"}, {"qwen3_moe"}, read_qwen3_moe_spec},
      {"glm4", {"Glm4ForCausalLM"}, {"glm4"}, read_glm4_spec},
      {"glm4_moe", {"Glm4MoeForCausalLM"}, {"glm4_moe"}, read_glm4_moe_spec},
      {"glm4_moe_lite", {"Glm4MoeLiteForCausalLM"}, {"glm4_moe_lite"}, read_glm4_moe_lite_spec},
      {"glm_moe_dsa", {"GlmMoeDsaForCausalLM"}, {"glm_moe_dsa"}, read_glm_moe_dsa_spec},
      {"deepseek_v3", {"DeepseekV3ForCausalLM"}, {"deepseek_v3"}, read_deepseek_v3_spec},
  };
  return families;
}

ModelSpec read_model_spec(const Json& config, const std::string& where) {
  if (!config.is_object())
    throw Error(ErrorCode::kInput, "config.json is not an object",
                "download it again from the model's publisher", where);
  ModelSpec spec = find_family(config, where).read_spec(config, where);
  check_spec(spec, where);
  return spec;
}

}  // namespace slimexx::model

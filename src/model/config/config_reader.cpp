#include "model/config/config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/model/families.h"
#include "slimexx/model/quantization.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::model {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr double kMaxInitializerRange = 100;  // random weights stay below float16's 65504

const Json* find(const Json& object, const std::string& key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace

std::string shorten(const std::string& value) {
  constexpr size_t kMaxEchoed = 40;
  return value.size() <= kMaxEchoed ? value : value.substr(0, kMaxEchoed) + "...";
}

void ConfigReader::fail(const std::string& what, const std::string& hint) const {
  throw Error(
      ErrorCode::kInput, what,
      hint.empty() ? "fix config.json, or download it again from the model's publisher" : hint,
      where_);
}

void ConfigReader::refuse(const std::string& what) const {
  fail(what, "slimexx cannot run a model that was trained with this setting");
}

void ConfigReader::refuse_null(const std::string& key) const {
  const auto it = config_.find(key);
  if (it != config_.end() && it->is_null())
    fail(fmt::format("\"{}\" is null", key),
         "give the model's value, or leave the key out to use the family's default");
}

void ConfigReader::require(const std::string& key, const std::string& why) const {
  if (!flag(key, true)) refuse(fmt::format("{} is {}: {}", key, has(key) ? "false" : "null", why));
}

bool ConfigReader::has(const std::string& key) const { return find(config_, key) != nullptr; }

std::optional<int64_t> ConfigReader::optional_size(const std::string& key) const {
  if (find(config_, key) == nullptr) return std::nullopt;
  return size(key);
}

int64_t ConfigReader::size(const std::string& key, int64_t max) const {
  const int64_t value = json_int(config_, key, where_);
  if (value < 1 || value > max)
    fail(fmt::format("\"{}\" is {}, but must be from 1 to {}", key, value, max));
  return value;
}

double ConfigReader::positive_number(const std::string& key) const {
  const double value = json_number(config_, key, where_);
  // Computations are in float32, where the value must be neither zero nor infinite.
  if (!(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value)))
    fail(fmt::format("\"{}\" is {}, but must be a positive number", key, value),
         "give a number from 1e-38 to 1e38");
  return value;
}

double ConfigReader::positive_number(const std::string& key, double fallback) const {
  return find(config_, key) == nullptr ? fallback : positive_number(key);
}

double ConfigReader::number_or_zero(const std::string& key) const {
  const bool is_zero = !has(key) || json_number(config_, key, where_) == 0;
  return is_zero ? 0 : positive_number(key);
}

bool ConfigReader::flag(const std::string& key, bool fallback) const {
  if (!config_.contains(key)) return fallback;
  const Json* value = find(config_, key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) fail(fmt::format("\"{}\" must be true or false", key));
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& fallback) const {
  return find(config_, key) == nullptr ? fallback : json_string(config_, key, where_);
}

// If both objects are present, transformers 5 reads rope_scaling, the only one that transformers 4
// knows.
const Json* ConfigReader::rope_object() const {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* value = find(config_, key);
    if (value == nullptr) continue;
    if (!value->is_object()) fail(fmt::format("\"{}\" must be an object", key));
    for (const auto& [name, member] : value->items()) {
      if (member.is_object())
        refuse(
            fmt::format("\"{}\" gives \"{}\" its own rotary embedding: not supported", key, name));
    }
    if (!value->empty()) return value;
  }
  return nullptr;
}

double ConfigReader::partial_rotary_factor(double fallback) const {
  const Json* rope = rope_object();
  const bool nested = rope != nullptr && find(*rope, "partial_rotary_factor") != nullptr;
  const Json& holder = nested ? *rope : config_;
  if (!holder.contains("partial_rotary_factor")) return fallback;
  if (!has("partial_rotary_factor") && !nested) return 1;  // explicit null: whole heads
  const double value = json_number(holder, "partial_rotary_factor", where_);
  if (!(value > 0 && value <= 1))
    fail(fmt::format("\"partial_rotary_factor\" is {}, but must be in (0, 1]", value));
  return value;
}

// The value at the top level overrides the nested one. If both are absent, the context was not
// stretched.
int64_t ConfigReader::original_max_positions(const ConfigReader& nested,
                                             const FamilyDefaults& defaults) const {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (const auto original = optional_size(kOriginal)) return *original;
  if (const auto original = nested.optional_size(kOriginal)) return *original;
  return optional_size("max_position_embeddings").value_or(defaults.max_positions);
}

void ConfigReader::read_llama3_scaling(RopeSpec& rope, const ConfigReader& nested) {
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = nested.positive_number("factor");
  rope.low_freq_factor = nested.positive_number("low_freq_factor");
  rope.high_freq_factor = nested.positive_number("high_freq_factor");
  if (rope.high_freq_factor <= rope.low_freq_factor)
    nested.fail("high_freq_factor must be above low_freq_factor");
}

RopeSpec ConfigReader::read_rope(int64_t head_dim, const FamilyDefaults& defaults) const {
  RopeSpec rope;
  const double part = partial_rotary_factor(defaults.partial_rotary_factor.value_or(1));
  if (!defaults.partial_rotary_factor && part != 1) {
    fail(fmt::format("\"partial_rotary_factor\" is {}, but this architecture rotates whole heads",
                     part),
         "remove it if the model was trained with rotation of whole heads");
  }
  rope.rotary_dim = static_cast<int64_t>(std::floor(static_cast<double>(head_dim) * part));
  refuse_null("rope_theta");
  rope.theta = positive_number("rope_theta", 10000);
  const Json* object = rope_object();
  if (object == nullptr) return rope;
  const ConfigReader nested(*object, where_ + " rope parameters");
  nested.refuse_null("rope_theta");
  rope.theta = nested.positive_number("rope_theta", rope.theta);
  const std::string type = nested.text("rope_type", nested.text("type", "default"));
  if (type == "default") return rope;
  rope.original_max_positions = original_max_positions(nested, defaults);
  rope.mscale_all_dim = nested.number_or_zero("mscale_all_dim");
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = nested.positive_number("factor");
  } else if (type == "llama3") {
    read_llama3_scaling(rope, nested);
  } else if (type == "yarn") {
    read_yarn_scaling(rope, nested);
  } else {
    fail(fmt::format("rope type \"{}\" is not supported", shorten(type)),
         "supported: default, linear, llama3, yarn");
  }
  return rope;
}

// Refuses a sliding window unless it applies to no layer. layer_types lists the layers with a
// window; without it, layers from max_window_layers on have one.
void ConfigReader::check_window(const FamilyDefaults& defaults) const {
  if (!flag("use_sliding_window", false)) return;
  if (config_.contains("sliding_window") && !has("sliding_window")) return;
  if (defaults.max_window_layers) {
    constexpr const char* kFirst = "max_window_layers";
    const int64_t num_layers = size("num_hidden_layers", kMaxLayers);
    if (has("layer_types") || count(kFirst, *defaults.max_window_layers, kMaxLayers) >= num_layers)
      return;
  }
  refuse("use_sliding_window is true: sliding-window attention is not supported yet");
}

// Refuses attention that is not causal over all earlier tokens (or over those that the family's
// indexers select).
void ConfigReader::check_attention(const FamilyDefaults& defaults) const {
  check_window(defaults);
  const std::string layer_type = defaults.layer_type;
  require("is_causal", "only causal attention is supported");
  const Json* kinds = find(config_, "layer_types");
  if (kinds == nullptr) return;
  if (!kinds->is_array()) fail("\"layer_types\" must be a list");
  for (const Json& kind : *kinds) {
    const bool is_old_name = kind == "deepseek_sparse_attention";
    if (kind != layer_type && !(is_old_name && layer_type == "indexed_attention")) {
      fail(fmt::format("layer_types holds {}: not supported",
                       kind.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 40)),
           fmt::format("supported: \"{}\"", layer_type));
    }
  }
}

GqaSpec ConfigReader::read_gqa(const ModelSpec& spec, const FamilyDefaults& defaults) const {
  GqaSpec attention{.hidden_size = spec.hidden_size, .rms_norm_eps = spec.rms_norm_eps};
  attention.num_heads = size("num_attention_heads", 1 << 16);
  // An explicit null means as many KV heads as query heads; a missing key means the family's
  // default.
  attention.num_kv_heads = config_.contains("num_key_value_heads")
                               ? optional_size("num_key_value_heads").value_or(attention.num_heads)
                               : defaults.num_kv_heads.value_or(attention.num_heads);
  if (attention.num_heads % attention.num_kv_heads != 0) {
    fail(fmt::format("num_attention_heads ({}) is not a multiple of num_key_value_heads ({})",
                     attention.num_heads, attention.num_kv_heads));
  }
  auto head_dim = optional_size("head_dim");
  if (!head_dim) head_dim = defaults.head_dim;
  if (!head_dim && spec.hidden_size % attention.num_heads != 0) {
    fail(fmt::format(
        "hidden_size ({}) is not a multiple of num_attention_heads ({}) and head_dim is absent",
        spec.hidden_size, attention.num_heads));
  }
  attention.head_dim = head_dim.value_or(spec.hidden_size / attention.num_heads);
  if (attention.head_dim > 1024)
    fail(fmt::format("head_dim is {}, but at most 1024 is supported", attention.head_dim));
  return attention;
}

DenseMlpSpec ConfigReader::read_dense_mlp(const ModelSpec& spec) const {
  return {.hidden_size = spec.hidden_size, .intermediate_size = size("intermediate_size", 1 << 24)};
}

// The dtype for exports.
tensor::DType ConfigReader::read_dtype() const {
  const char* key = find(config_, "dtype") == nullptr ? "torch_dtype" : "dtype";
  const std::string name = text(key, "bfloat16");
  const auto dtype = tensor::parse_torch_dtype(name);
  if (!dtype || !tensor::is_convertible(*dtype)) {
    fail(fmt::format("\"{}\" is \"{}\", which is not a supported dtype for weights", key,
                     shorten(name)),
         fmt::format("supported: {}", tensor::kConvertibleTorchNames));
  }
  return *dtype;
}

bool names_dtype(const Json& config) {
  return find(config, "dtype") != nullptr || find(config, "torch_dtype") != nullptr;
}

ModelSpec ConfigReader::read_globals(const std::string& family,
                                     const FamilyDefaults& defaults) const {
  ModelSpec spec;
  spec.family = family;
  const Json* names = find(config_, "architectures");
  if (names != nullptr && names->is_array() && !names->empty() && (*names)[0].is_string()) {
    spec.architecture = (*names)[0].get<std::string>();
  }
  spec.vocab_size = size("vocab_size", 1 << 24);
  spec.hidden_size = size("hidden_size", 1 << 20);
  spec.max_positions = optional_size("max_position_embeddings").value_or(defaults.max_positions);
  refuse_null("rms_norm_eps");
  spec.rms_norm_eps = positive_number("rms_norm_eps", defaults.rms_norm_eps);
  spec.initializer_range = positive_number("initializer_range", 0.02);
  if (spec.initializer_range > kMaxInitializerRange) {
    fail(fmt::format("\"initializer_range\" is {}: random weights would not be finite",
                     spec.initializer_range),
         fmt::format("give a number up to {}; 0.02 is usual", kMaxInitializerRange));
  }
  spec.tied_embeddings = flag("tie_word_embeddings", false);
  const std::string activation = text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(fmt::format("hidden_act \"{}\" is not supported", shorten(activation)), "supported: silu");
  }
  check_attention(defaults);
  if (has("per_layer_config") && !config_.at("per_layer_config").empty())
    refuse("per_layer_config (a different architecture per layer) is not supported");
  read_quantization(config_, where_);  // refuses formats that the loader cannot read
  spec.checkpoint_dtype = read_dtype();
  spec.layers.resize(static_cast<size_t>(size("num_hidden_layers", kMaxLayers)));
  return spec;
}

ModelSpec ConfigReader::read_common(const std::string& family,
                                    const FamilyDefaults& defaults) const {
  ModelSpec spec = read_globals(family, defaults);
  const GqaSpec attention = read_gqa(spec, defaults);
  spec.rope = read_rope(attention.head_dim, defaults);
  for (LayerSpec& layer : spec.layers)
    layer = {.attention = attention, .mlp = read_dense_mlp(spec)};
  return spec;
}

}  // namespace slimexx::model

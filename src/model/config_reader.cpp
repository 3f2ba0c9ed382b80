#include "config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

const Json* find(const Json& object, const std::string& key) {
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace

void ConfigReader::fail(const std::string& what, const std::string& hint) const {
  throw Error(ErrorCode::kInput, what, hint, where_);
}

std::optional<int64_t> ConfigReader::optional_size(const std::string& key) const {
  if (find(config_, key) == nullptr) return std::nullopt;
  return size(key);
}

int64_t ConfigReader::size(const std::string& key, int64_t max) const {
  const int64_t value = json_int(config_, key, where_);
  if (value < 1 || value > max) fail(fmt::format("\"{}\" is {}, wanted 1 to {}", key, value, max));
  return value;
}

double ConfigReader::positive_number(const std::string& key, double fallback) const {
  if (find(config_, key) == nullptr) return fallback;
  const double value = json_number(config_, key, where_);
  if (!(value > 0) || !std::isfinite(value))
    fail(fmt::format("\"{}\" is {}, wanted a positive number", key, value));
  return value;
}

bool ConfigReader::flag(const std::string& key, bool fallback) const {
  const Json* value = find(config_, key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(fmt::format("\"{}\" must be true or false", key));
  return value->get<bool>();
}

std::string ConfigReader::text(const std::string& key, const std::string& fallback) const {
  return find(config_, key) == nullptr ? fallback : json_string(config_, key, where_);
}

const Json* ConfigReader::rope_object() const {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (const Json* value = find(config_, key)) {
      if (!value->is_object()) fail(fmt::format("\"{}\" must be an object", key));
      return value;
    }
  }
  return nullptr;
}

double ConfigReader::partial_rotary_factor(double fallback) const {
  const Json* rope = rope_object();
  const bool nested = rope != nullptr && find(*rope, "partial_rotary_factor") != nullptr;
  const Json& holder = nested ? *rope : config_;
  if (find(holder, "partial_rotary_factor") == nullptr) return fallback;
  const double value = json_number(holder, "partial_rotary_factor", where_);
  if (!(value > 0 && value <= 1))
    fail(fmt::format("\"partial_rotary_factor\" is {}, wanted (0, 1]", value));
  return value;
}

void ConfigReader::read_rope(ModelSpec& spec) const {
  RopeSpec& rope = spec.rope;
  rope.theta = positive_number("rope_theta", 10000);
  const Json* object = rope_object();
  if (object == nullptr) return;
  const ConfigReader nested(*object, where_ + " rope parameters");
  rope.theta = nested.positive_number("rope_theta", rope.theta);
  const std::string type = nested.text("rope_type", nested.text("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = nested.positive_number("factor", 1);
  } else if (type == "llama3") {
    rope.scaling = RopeScaling::kLlama3;
    rope.factor = nested.positive_number("factor", 8);
    rope.low_freq_factor = nested.positive_number("low_freq_factor", 1);
    rope.high_freq_factor = nested.positive_number("high_freq_factor", 4);
    rope.original_max_positions = nested.size("original_max_position_embeddings");
    if (rope.high_freq_factor <= rope.low_freq_factor)
      nested.fail("high_freq_factor must be above low_freq_factor");
  } else {
    fail(fmt::format("rope type \"{}\" is not supported", type),
         "supported: default, linear, llama3");
  }
}

ModelSpec ConfigReader::read_common(const std::string& family) const {
  ModelSpec spec;
  spec.family = family;
  const Json* names = find(config_, "architectures");
  if (names != nullptr && names->is_array() && !names->empty() && (*names)[0].is_string()) {
    spec.architecture = (*names)[0].get<std::string>();
  }
  spec.vocab_size = size("vocab_size", 1 << 24);
  spec.hidden_size = size("hidden_size", 1 << 20);
  spec.num_layers = size("num_hidden_layers", 4096);
  spec.intermediate_size = size("intermediate_size", 1 << 24);
  spec.num_heads = size("num_attention_heads", 1 << 16);
  spec.num_kv_heads = optional_size("num_key_value_heads").value_or(spec.num_heads);
  if (spec.num_heads % spec.num_kv_heads != 0) {
    fail(fmt::format("num_attention_heads ({}) is not a multiple of num_key_value_heads ({})",
                     spec.num_heads, spec.num_kv_heads));
  }
  if (const auto head_dim = optional_size("head_dim")) {
    spec.head_dim = *head_dim;
  } else {
    if (spec.hidden_size % spec.num_heads != 0) {
      fail(fmt::format(
          "hidden_size ({}) is not a multiple of num_attention_heads ({}) and head_dim is absent",
          spec.hidden_size, spec.num_heads));
    }
    spec.head_dim = spec.hidden_size / spec.num_heads;
  }
  if (spec.head_dim > 1024)
    fail(fmt::format("head_dim is {}, at most 1024 is supported", spec.head_dim));
  spec.max_positions = optional_size("max_position_embeddings").value_or(32768);
  spec.rms_norm_eps = positive_number("rms_norm_eps", 1e-6);
  spec.initializer_range = positive_number("initializer_range", 0.02);
  spec.tied_embeddings = flag("tie_word_embeddings", false);
  const std::string activation = text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(fmt::format("hidden_act \"{}\" is not supported", activation), "supported: silu");
  }
  if (flag("use_sliding_window", false)) {
    fail("use_sliding_window is true: sliding-window attention is not supported yet");
  }
  const std::string dtype = text("dtype", text("torch_dtype", "bfloat16"));
  const auto parsed = tensor::parse_torch_dtype(dtype);
  if (!parsed) fail(fmt::format("dtype \"{}\" is unknown", dtype));
  spec.checkpoint_dtype = *parsed;
  spec.layers.resize(static_cast<size_t>(spec.num_layers));
  spec.rope.rotary_dim = spec.head_dim;
  read_rope(spec);
  return spec;
}

}  // namespace slimexx::model

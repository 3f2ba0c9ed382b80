// Reads the keys of config.json for latent attention and yarn.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/config/config_reader.h"
#include "model/rotary_table.h"

namespace slimexx::model {

// Follows transformers 5: attention_factor scales cosines and sines; without it, the ratio of the
// mscale and mscale_all_dim terms does.
void ConfigReader::read_yarn_scaling(RopeSpec& rope, const ConfigReader& nested) {
  rope.scaling = RopeScaling::kYarn;
  rope.factor = nested.positive_number("factor");
  rope.beta_fast = nested.positive_number("beta_fast", 32);
  rope.beta_slow = nested.positive_number("beta_slow", 1);
  if (rope.beta_fast < rope.beta_slow) nested.fail("beta_fast must not be below beta_slow");
  nested.require("truncate", "not supported");
  const double mscale = nested.number_or_zero("mscale");
  const double fallback =
      mscale > 0 && rope.mscale_all_dim > 0
          ? yarn_scale(rope.factor, mscale) / yarn_scale(rope.factor, rope.mscale_all_dim)
          : yarn_scale(rope.factor, 1);
  rope.table_scale = nested.positive_number("attention_factor", fallback);
}

MlaSpec ConfigReader::read_mla(const ModelSpec& spec, const FamilyDefaults& defaults) const {
  optional_size("head_dim");  // not used; only checks the value
  MlaSpec mla{.hidden_size = spec.hidden_size,
              .num_heads = size("num_attention_heads", 1 << 16),
              // An explicit null differs from a missing key: with null, queries are projected from
              // the input directly.
              .q_rank = config_.contains("q_lora_rank") ? optional_size("q_lora_rank").value_or(0)
                                                        : defaults.q_rank,
              .kv_rank = size("kv_lora_rank", 1 << 16),
              .nope_dim = size("qk_nope_head_dim", 1024),
              .rope_dim = size("qk_rope_head_dim", 1024),
              .value_dim = size("v_head_dim", 1024),
              .bias = flag("attention_bias", false)};
  const int64_t kv_heads = optional_size("num_key_value_heads").value_or(mla.num_heads);
  if (kv_heads != mla.num_heads)
    fail(
        fmt::format("num_key_value_heads ({}) must equal num_attention_heads ({}), because latent "
                    "attention has keys for every head",
                    kv_heads, mla.num_heads));
  return mla;
}

ModelSpec ConfigReader::read_latent(const std::string& family,
                                    const FamilyDefaults& defaults) const {
  ModelSpec spec = read_globals(family, defaults);
  MlaSpec attention = read_mla(spec, defaults);
  spec.rope = read_rope(attention.rope_dim, defaults);
  spec.rope.style =
      flag("rope_interleave", true) ? ops::RotaryStyle::kInterleaved : ops::RotaryStyle::kHalfSplit;
  if (spec.rope.mscale_all_dim > 0) {
    const double m = yarn_scale(spec.rope.factor, spec.rope.mscale_all_dim);
    attention.scale_factor = m * m;
  }
  for (LayerSpec& layer : spec.layers)
    layer = {.attention = attention, .mlp = read_dense_mlp(spec)};
  return spec;
}

}  // namespace slimexx::model

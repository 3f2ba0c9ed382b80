// Changes of the golden models' config.json, with which their matrices can be FP8.
#pragma once

namespace slimexx::e2e {

// With these sizes two tensor-parallel ranks hold whole blocks. Heads of latent attention have 64
// rows of each kind.
inline constexpr const char* kDense = R"({"hidden_size": 256, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 256, "num_hidden_layers": 2})";
inline constexpr const char* kExperts = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 256,
  "moe_intermediate_size": 128, "num_hidden_layers": 2})";
inline constexpr const char* kLatent = R"({"hidden_size": 128, "num_attention_heads": 4,
  "num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 64,
  "qk_rope_head_dim": 64, "qk_head_dim": 128, "v_head_dim": 64, "intermediate_size": 256,
  "moe_intermediate_size": 128, "num_hidden_layers": 2, "mlp_layer_types": ["dense", "sparse"]})";

}  // namespace slimexx::e2e

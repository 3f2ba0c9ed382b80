// Qwen3 mixture of experts: the attention of Qwen3, softmax routing, no shared expert.
#include <algorithm>

#include "model/config/config_reader.h"

namespace slimexx::model {

ModelSpec read_qwen3_moe_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("qwen3_moe", {.num_kv_heads = 4});
  const bool attention_bias = reader.flag("attention_bias", false);
  // transformers 5 writes the number of experts under its own name.
  const char* num_experts = reader.has("num_local_experts") ? "num_local_experts" : "num_experts";
  const MoeMlpSpec experts{.hidden_size = spec.hidden_size,
                           .intermediate_size = reader.size("moe_intermediate_size", 1 << 24),
                           .router = reader.read_router(
                               num_experts, {.score = ops::RouterScore::kSoftmax,
                                             .normalized = reader.flag("norm_topk_prob", false)})};
  const int64_t step = reader.optional_size("decoder_sparse_step").value_or(1);
  const std::vector<int64_t> dense = reader.list_layers("mlp_only_layers", spec.num_layers());
  for (int64_t i = 0; i < spec.num_layers(); ++i) {
    LayerSpec& layer = spec.layers[static_cast<size_t>(i)];
    auto& attention = std::get<GqaSpec>(layer.attention);
    attention.qkv_bias = attention.o_bias = attention_bias;
    attention.qk_norm = true;
    const bool is_dense = std::find(dense.begin(), dense.end(), i) != dense.end();
    if (!is_dense && (i + 1) % step == 0) layer.mlp = experts;
  }
  return spec;
}

}  // namespace slimexx::model

// Qwen3 dense: Llama with RMSNorm on every query and key head.
#include "../config_reader.h"

namespace slimexx::model {

ModelSpec read_qwen3_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("qwen3", {.num_kv_heads = 32, .head_dim = 128});
  spec.qkv_bias = spec.o_bias = reader.flag("attention_bias", false);
  spec.qk_norm = true;
  return spec;
}

}  // namespace slimexx::model

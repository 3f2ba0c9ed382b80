// Llama 2 and 3: pre-norm, half-split rotary, optional biases, llama3 rope scaling.
#include "../config_reader.h"

namespace slimexx::model {

ModelSpec read_llama_spec(const Json& config, const std::string& where) {
  const ConfigReader reader(config, where);
  ModelSpec spec = reader.read_common("llama", {});
  spec.qkv_bias = spec.o_bias = reader.flag("attention_bias", false);
  spec.mlp_bias = reader.flag("mlp_bias", false);
  return spec;
}

}  // namespace slimexx::model

#include "slimexx/model/spec.h"

namespace slimexx::model {

double forward_flops(const ModelSpec& s, int64_t num_tokens) {
  const auto n = static_cast<double>(num_tokens);
  const auto hidden = static_cast<double>(s.hidden_size);
  const auto q = static_cast<double>(s.q_size());
  const double projections =
      2 * n * hidden * static_cast<double>(s.qkv_size()) + 2 * n * q * hidden;
  const double attention = 2 * q * n * n;  // scores and values, each 2 q n^2, halved by causality
  const double mlp = 6 * n * hidden * static_cast<double>(s.intermediate_size);
  const double head = 2 * n * hidden * static_cast<double>(s.vocab_size);
  return static_cast<double>(s.num_layers) * (projections + attention + mlp) + head;
}

}  // namespace slimexx::model

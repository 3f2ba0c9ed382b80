// Log-probs of responses under fixed weights: one forward over packed samples, without the
// gradients and the optimizer's state that a trainer carries. The numbers are the trainer's and the
// engine's, bit for bit: the forward is the same, and no row looks at another (numerics contract).
#pragma once
#include <span>
#include <vector>

#include "slimexx/model/decoder.h"
#include "slimexx/sample/sample.h"

namespace slimexx::train {

using sample::Sample;

struct TokenScores {
  std::vector<float> log_probs, entropies;  // [response_length]
};

class Scorer {
 public:
  // `decoder` and `store` are borrowed; `temperature` divides the logits.
  Scorer(const model::Decoder& decoder, const model::ParameterStore& store, float temperature,
         tensor::Device device);
  // Scores of the samples' responses, in one forward.
  std::vector<TokenScores> score(std::span<const Sample> samples);

 private:
  const model::Decoder& decoder_;
  model::ModelParameters weights_;
  model::HeadOptions head_options_;
  tensor::Device device_;
  tensor::Arena arena_;
};

}  // namespace slimexx::train

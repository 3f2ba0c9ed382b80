// Log-probs of whole sequences under fixed weights: one forward over packed sequences, without the
// gradients and optimizer state that a trainer carries. The numbers are the trainer's and the
// engine's, bit for bit: the forward is the same, and no row looks at another (numerics contract).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/transformer.h"

namespace slimexx::cli {

struct SequenceScores {
  std::vector<float> log_probs, entropies;  // number t belongs to token t + 1
};

class SequenceScorer {
 public:
  // `transformer` and `store` are borrowed; `temperature` divides the logits.
  SequenceScorer(const model::Transformer& transformer, const model::ParameterStore& store,
                 float temperature, tensor::Device device);
  // Sequences of at least two tokens, in one forward.
  std::vector<SequenceScores> score(std::span<const std::vector<int32_t>> sequences);

 private:
  struct Pack;
  void run(const ops::Context& ctx, const Pack& pack, float* log_probs, float* entropies) const;

  const model::Transformer& transformer_;
  model::ModelParameters weights_;
  model::HeadOptions head_;
  tensor::Device device_;
  tensor::Arena arena_;
};

}  // namespace slimexx::cli

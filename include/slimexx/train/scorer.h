// Log-probs of responses under fixed weights: one forward over packed samples, without the
// gradients and the optimizer's state that a trainer carries. The numbers are the trainer's and the
// engine's, bit for bit: the forward is the same, and no row depends on another (numerics
// contract).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/sample/sample.h"
#include "slimexx/train/stage_decoders.h"

namespace slimexx::train {

using sample::Sample;

struct TokenScores {
  std::vector<float> log_probs, entropies;  // [response_length]
};

struct StageChunk;  // src/train/passes/executor.h

class Scorer {
 public:
  // Borrowed: the stages of this rank of groups.pp, and a store that holds them.
  // `temperature` divides the logits.
  Scorer(const StageDecoders& decoders, const model::ParameterStore& store, float temperature,
         tensor::Device device, const dist::Groups& groups = dist::groups_of_one());
  ~Scorer();
  // Scores the samples' responses in one forward. Collective over the ranks of a replica, which all
  // have the same samples, and, if experts are split, over groups.ep and groups.etp: then
  // `most_tokens` is the maximum over these ranks, some of which may have no sample. The replica's
  // reporter gets the scores, its other ranks nothing.
  std::vector<TokenScores> score(std::span<const Sample> samples, int64_t most_tokens = 0);

 private:
  std::vector<StageChunk> chunks_;
  dist::Groups groups_;
  model::HeadOptions head_options_;
  tensor::Device device_;
  tensor::Arena scratch_;              // shared by several slots
  std::vector<tensor::Arena> arenas_;  // one per slot
};

}  // namespace slimexx::train

// Gives every rank the scores of all microbatches of a scoring pass.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "slimexx/train/scorer.h"
#include "train/memory/assignment.h"
#include "train/trained_stages.h"

namespace slimexx::train {

class ScoreExchange {
 public:
  explicit ScoreExchange(const TrainedStages& stages) : stages_(stages) {}
  // `mine`: the scores of this replica's microbatches, as run_scoring appends them. All ranks of a
  // replica have these scores, but only those of its reporter are used. Collective.
  std::vector<TokenScores> gather(std::string mine, const Assignment& assignment,
                                  std::span<const Sample> samples);

 private:
  const TrainedStages& stages_;
  std::vector<int> reporters_;  // ranks of stages_.host, by dp rank; filled on first use
};

}  // namespace slimexx::train

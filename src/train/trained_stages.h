// The data of a trainer: one rank's stages of the policy, its groups, and how it trains. Plain
// data that the trainer's parts borrow.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/train/options.h"
#include "slimexx/train/schedule.h"
#include "slimexx/train/stage_decoders.h"
#include "train/passes/executor.h"

namespace slimexx::train {

struct TrainedStages {
  StageDecoders decoders;
  const model::ModelSpec& spec;  // the whole model
  std::vector<StageChunk> chunks;
  model::ParameterStore& policy;
  dist::Collective& host;  // all ranks
  dist::Groups groups;
  TrainOptions options;
  model::HeadOptions head;
  tensor::Device device;

  PipelineShape shape(size_t num_chunks) const {
    return make_pipeline_shape(options, groups.pp.size(), num_chunks);
  }
  // The limit for all cp ranks together, which share a microbatch.
  int64_t max_microbatch_tokens() const { return options.max_tokens_per_gpu * groups.cp.size(); }
};

// The most slots and deferred products of a step, over any number of microbatches.
inline SlotCounts most_counts(const TrainedStages& stages) {
  return count_all(
      list_most_operations(stages.groups.pp.rank(), stages.shape(stages.chunks.size())));
}

}  // namespace slimexx::train

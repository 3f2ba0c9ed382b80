// How a model is split into pipeline stages.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "slimexx/model/spec.h"

namespace slimexx::model {

// Megatron's pipeline_model_parallel_size, decoder_first_pipeline_num_layers,
// decoder_last_pipeline_num_layers and num_layers_per_virtual_pipeline_stage.
struct PipelineSplit {
  int num_ranks = 1;
  // Layers of the first and of the last rank; the other ranks share the rest evenly.
  std::optional<int64_t> first_layers = {}, last_layers = {};
  // Interleaved: a rank has several stages of this many layers each.
  std::optional<int64_t> layers_per_virtual_stage = {};
};

// The stages of each rank, [rank][chunk]: stage s of all is chunk s / num_ranks of rank
// s % num_ranks. Throws Error(kUsage) with the equation and a split that would do if the layers do
// not divide, or with the splits that would if a stage began at a layer that shares the keys that
// an earlier layer selects.
std::vector<std::vector<StageRange>> list_stages(const ModelSpec& spec, const PipelineSplit& split);
// Whether it does not throw, which takes much longer: it looks for a split that would do.
bool can_split(const ModelSpec& spec, const PipelineSplit& split);

// Whether a stage without the embedding holds a copy of its table all the same: as the head of tied
// embeddings, which gets a gradient of its own, or for MTP layers that are trained, frozen. The
// stage with the embedding counts the table; the copy gets its weights after every step.
bool holds_embedding_copy(const ModelSpec& spec, const StageRange& stage);

}  // namespace slimexx::model

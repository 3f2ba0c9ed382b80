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

// The stages of each rank, [rank][chunk]: stage s of all is chunk s / num_ranks of rank s %
// num_ranks. Throws Error(kUsage) if the ranks do not divide the layers, with the equation and a
// valid split; or if a stage would begin at a layer that shares the keys selected by an earlier
// layer, with valid splits.
std::vector<std::vector<StageRange>> list_stages(const ModelSpec& spec, const PipelineSplit& split);
// Whether list_stages succeeds. Much faster than catching its error, which searches for a valid
// split.
bool can_split(const ModelSpec& spec, const PipelineSplit& split);

// Whether a stage without the embedding holds a copy of its table: as the head of tied embeddings
// (with its own gradient), or for trained MTP layers (frozen). The stage with the embedding counts
// the table; the copy receives its weights after every step.
bool holds_embedding_copy(const ModelSpec& spec, const StageRange& stage);

}  // namespace slimexx::model

// The ranks that hold a model together: the first ranks of the world. The other ranks hold nothing
// of the model. Ranks on the same host read the model's folder together.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/dist/process_grid.h"
#include "slimexx/dist/world.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/stages.h"

namespace slimexx::rl {

struct ModelRanks {
  dist::GridShape grid;
  model::PipelineSplit split;  // for grid.sizes().pp ranks
  int rank = 0;                // in the grid; ranks without a part of the model have higher numbers
  std::unique_ptr<dist::Collective>
      host;                     // the ranks of this host; must be destroyed before the world
  std::vector<int> host_ranks;  // their numbers in the grid, by rank of `host`
  int num_others = 0;           // ranks of the world past the grid
};
// `num_holders` 0: all ranks. Collective over the world.
ModelRanks make_model_ranks(dist::World& world, const dist::GridSizes& sizes,
                            const model::PipelineSplit& split = {}, int num_holders = 0);
// Every rank holds all parameters.
bool holds_all(const dist::GridSizes& sizes);
// Decoders for the pipeline stages of this rank (its shard of the layers), by chunk. `leaves` as in
// Decoder. Throws Error(kUsage) if the model does not divide by the grid.
std::vector<std::unique_ptr<model::Decoder>> make_decoders(const model::ModelSpec& spec,
                                                           const ModelRanks& ranks,
                                                           tensor::Device device,
                                                           int64_t max_positions,
                                                           int64_t leaves = 0);
// The layout of a model over all ranks of the world. `ranks` null: one rank that holds everything.
model::Layout make_model_layout(const model::ModelSpec& spec, const ModelRanks* ranks);

}  // namespace slimexx::rl

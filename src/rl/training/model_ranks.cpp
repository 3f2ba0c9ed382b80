#include "slimexx/rl/model_ranks.h"

#include "slimexx/model/families.h"
#include "slimexx/rl/model_grid.h"

namespace slimexx::rl {

ModelRanks make_model_ranks(dist::World& world, const dist::GridSizes& sizes,
                            const model::PipelineSplit& split, int num_holders) {
  const int in_grid = num_holders > 0 ? num_holders : world.size();
  const int first_color = world.rank() < in_grid ? 0 : world.size();
  ModelRanks ranks{
      .grid = dist::GridShape(in_grid, sizes),
      .split = split,
      .rank = world.rank(),
      .host = world.ranks().split(world.first_local_rank() + first_color, world.rank()),
      .host_ranks = {},
      .num_others = world.size() - in_grid};
  ranks.split.num_ranks = sizes.pp;
  int64_t own = world.rank();
  std::vector<int64_t> all(static_cast<size_t>(ranks.host->size()));
  ranks.host->all_gather({}, tensor::Tensor(all.data(), tensor::DType::kI64, {}, {std::ssize(all)}),
                         tensor::Tensor(&own, tensor::DType::kI64, {}, {1}));
  for (const int64_t rank : all) ranks.host_ranks.push_back(static_cast<int>(rank));
  return ranks;
}

bool holds_all(const dist::GridSizes& sizes) {
  return sizes.tp == 1 && sizes.pp == 1 && sizes.ep == 1 && sizes.etp == 1;
}

std::vector<std::unique_ptr<model::Decoder>> make_decoders(const model::ModelSpec& spec,
                                                           const ModelRanks& ranks,
                                                           tensor::Device device,
                                                           int64_t max_positions, int64_t leaves) {
  const auto stages = model::list_stages(spec, ranks.split);
  const auto own = static_cast<size_t>(ranks.grid.position(ranks.rank).pp);
  std::vector<std::unique_ptr<model::Decoder>> decoders;
  for (const model::StageRange& stage : stages[own])
    decoders.push_back(std::make_unique<model::Decoder>(spec, device, max_positions, stage,
                                                        ranks.grid.sizes(), leaves));
  return decoders;
}

model::Layout make_model_layout(const model::ModelSpec& spec, const ModelRanks* ranks) {
  if (ranks == nullptr)
    return model::make_layout({model::list_parameters(spec)}, dist::GridShape(1, {}));
  check_model_grid(spec, ranks->grid, ranks->split);
  std::vector<std::vector<model::ParameterInfo>> stages;
  for (const auto& chunks : model::list_stages(spec, ranks->split))
    stages.push_back(model::list_parameters(spec, chunks));
  model::Layout layout = model::make_layout(stages, ranks->grid);
  layout.ranks.resize(layout.ranks.size() + static_cast<size_t>(ranks->num_others),
                      std::make_shared<const std::vector<model::ParameterInfo>>());
  return layout;
}

}  // namespace slimexx::rl

#include "slimexx/rl/model_ranks.h"

#include "slimexx/model/families.h"

namespace slimexx::rl {

ModelRanks make_model_ranks(dist::World& world, const dist::GridSizes& sizes) {
  ModelRanks ranks{.grid = dist::GridShape(world.size(), sizes),
                   .rank = world.rank(),
                   .host = world.ranks().split(world.first_local_rank(), world.rank()),
                   .host_ranks = {}};
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

model::StageRange own_stage(const model::ModelSpec& spec, const ModelRanks&) {
  return model::whole_model(spec);
}

model::Layout make_model_layout(const model::ModelSpec& spec, const ModelRanks* ranks) {
  return model::make_layout({model::list_parameters(spec)},
                            ranks != nullptr ? ranks->grid : dist::GridShape(1, {}));
}

}  // namespace slimexx::rl

// A random model sharded over a grid; all shards together equal the RandomModel.
#pragma once
#include <gtest/gtest.h>

#include "model/random_model.h"
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/families.h"
#include "slimexx/model/weight_plan.h"

namespace slimexx::rollout {

using model::RandomModel;

struct ShardedModel {
  dist::ProcessGrid grid;
  model::ParameterStore store;
  model::Decoder decoder;
  model::ModelParameters weights;

  // `spec_of_ranks` may replicate parameters that `spec` shards.
  ShardedModel(dist::Collective& host, const model::ModelSpec& spec, const dist::GridSizes& sizes,
               tensor::Device device = {})
      : ShardedModel(host, spec, sizes, spec, device) {}
  ShardedModel(dist::Collective& host, const model::ModelSpec& spec, const dist::GridSizes& sizes,
               const model::ModelSpec& spec_of_ranks, tensor::Device device)
      : grid(host, sizes, device),
        store(*layout(spec_of_ranks, grid.shape()).ranks[static_cast<size_t>(host.rank())], device,
              false),
        decoder(spec_of_ranks, device, spec.max_positions, model::whole_model(spec), sizes) {
    const RandomModel whole(spec, device, false);
    tensor::Arena arena(device, 1 << 20, "test");
    model::WeightTraffic traffic;
    const model::WeightPlan plan =
        model::make_weight_plans(layout(spec, dist::GridShape(host.size(), {})),
                                 layout(spec_of_ranks, grid.shape()), {{host.rank()}})[0];
    EXPECT_EQ(plan.num_rounds, 0);
    model::move_local_weights(ops::compute_context(arena), plan, whole.store, store, traffic);
    weights = model::bind_weights(store, spec_of_ranks);
  }
  static model::Layout layout(const model::ModelSpec& spec, const dist::GridShape& shape) {
    return model::make_layout({model::list_parameters(spec)}, shape);
  }
};

}  // namespace slimexx::rollout

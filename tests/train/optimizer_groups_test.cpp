// Tests parameter groups whose gradients are summed over different ranks: each is reduced, updated
// and counted once.
#include <mutex>

#include "cpu_context.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/train/optimizer.h"
#include "train/grids/two_groups.h"

namespace slimexx::train {
namespace {

constexpr double kLearningRate = 0.01;

OptimizerOptions adamw_options(double clip_grad = 0) {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  options.clip_grad = clip_grad;
  return options;
}

std::vector<GradientPart> parts_of_layers(const model::ParameterStore& store) {
  return list_gradient_parts(store, made_up_spec(), 1);
}

// Runs one rank's steps with the summed gradients as input.
struct OneRank {
  explicit OneRank(int num_steps) : store(made_up_parameters(), {}, true) {
    fill_weights(store);
    ShardedAdamW optimizer(store, ranks, dist::groups_of_one(), adamw_options(), {});
    for (int step = 0; step < num_steps; ++step) {
      fill_gradient_sums(store, {}, step);
      norms.push_back(optimizer.reduce_gradients(cpu_context()));
      optimizer.step(cpu_context(), kLearningRate, norms.back());
      weight_norms.push_back(optimizer.weight_norm(cpu_context()));
    }
  }
  dist::Collective ranks;
  model::ParameterStore store;
  std::vector<double> norms, weight_norms;
};

TEST(OptimizerGroups, EachIsSummedByItsOwnRanks) {
  const OneRank expected(3);
  dist::run_thread_ranks(4, [&](dist::Collective& host) {
    const dist::ProcessGrid grid(host, kTwoPairs, {});
    for (const bool by_layers : {false, true}) {
      model::ParameterStore store(parameters_of_rank(grid.shape(), host.rank()), {}, true);
      ASSERT_EQ(store.groups().size(), 2u);
      fill_weights(store);
      ShardedAdamW optimizer(store, host, grid.groups(), adamw_options(), {},
                             by_layers ? parts_of_layers(store) : std::vector<GradientPart>{});
      EXPECT_EQ(optimizer.groups()[0].ranks->size(), 4);
      EXPECT_EQ(optimizer.groups()[1].ranks->size(), 2);
      for (int step = 0; step < 3; ++step) {
        fill_gradient_shares(store, grid.shape().position(host.rank()), step);
        if (by_layers) optimizer.start_gradient_part(cpu_context(), 0);
        const double norm = optimizer.reduce_gradients(cpu_context());
        EXPECT_NEAR(norm, expected.norms[static_cast<size_t>(step)], 1e-12 * norm);
        optimizer.step(cpu_context(), kLearningRate, norm);
        const double weight_norm = optimizer.weight_norm(cpu_context());
        EXPECT_NEAR(weight_norm, expected.weight_norms[static_cast<size_t>(step)],
                    1e-12 * weight_norm);
      }
      EXPECT_EQ(first_different_weight(store, expected.store), "") << "rank " << host.rank();
    }
  });
}

// Gathered gradients equal the sums, for both groups on every rank.
TEST(OptimizerGroups, GathersTheSums) {
  dist::run_thread_ranks(4, [&](dist::Collective& host) {
    const dist::ProcessGrid grid(host, kTwoPairs, {});
    model::ParameterStore store(parameters_of_rank(grid.shape(), host.rank()), {}, true);
    ShardedAdamW optimizer(store, host, grid.groups(), adamw_options(), {}, parts_of_layers(store));
    fill_gradient_shares(store, grid.shape().position(host.rank()), 0);
    optimizer.reduce_gradients(cpu_context());
    optimizer.gather_gradients(cpu_context());
    for (const auto& info : store.infos())
      for (const model::ElementRun& run : model::list_runs(info))
        for (int64_t i = 0; i < run.size; ++i)
          ASSERT_EQ(store.gradient(info.id).f32()[run.in_parameter + i],
                    gradient_sum(info.parts[0].name, run.on_disk + i, 0))
              << info.name << "[" << i << "], rank " << host.rank();
  });
}

// Clipping uses the joint norm of both groups.
TEST(OptimizerGroups, AreClippedTogether) {
  const OneRank whole(1);
  dist::run_thread_ranks(4, [&](dist::Collective& host) {
    const dist::ProcessGrid grid(host, kTwoPairs, {});
    model::ParameterStore store(parameters_of_rank(grid.shape(), host.rank()), {}, true);
    ShardedAdamW optimizer(store, host, grid.groups(), adamw_options(whole.norms[0] / 4), {});
    fill_gradient_shares(store, grid.shape().position(host.rank()), 0);
    optimizer.step(cpu_context(), kLearningRate, optimizer.reduce_gradients(cpu_context()));
    // First moment after one step: (1 - beta1) * clipped gradient.
    for (const OwnedGroup& group : optimizer.groups()) {
      for (const OwnedPiece& piece : group.pieces) {
        for (int64_t i = 0; i < piece.range.size(); ++i) {
          const float gradient = group.parameters->gradients.f32()[piece.range.begin + i];
          ASSERT_NEAR(group.exp_avg.f32()[piece.begin + i], 0.1f * gradient / 4,
                      1e-6 * std::abs(gradient));
        }
      }
    }
  });
}

// Two groups whose parts become final layer by layer.
TEST(OptimizerGroups, PartsComeInTheOrderOfBackward) {
  const model::ParameterStore store(made_up_parameters(), {}, true);
  const auto parts = parts_of_layers(store);
  std::vector<std::pair<int64_t, size_t>> order;
  for (const GradientPart& part : parts) order.emplace_back(part.last_stage, part.group);
  EXPECT_EQ(order, (std::vector<std::pair<int64_t, size_t>>{
                       {0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {3, 0}}));
  EXPECT_EQ(parts[2].range, (dist::Range{store.infos()[7].offset, store.groups()[1].num_elements}));
  EXPECT_EQ(parts[4].range, (dist::Range{0, store.infos()[7].offset}));
}

}  // namespace
}  // namespace slimexx::train

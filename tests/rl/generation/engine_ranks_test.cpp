// Tests generation on engines of several ranks: one queue, the same samples as one rank, and all
// ranks end together when one stops or fails.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "rl/tiny_rollout.h"
#include "rollout/sharded_model.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rl {
namespace {

struct EngineGrid {
  const char* name;
  int world_size;
  dist::GridSizes sizes;
};
// All grids have TP 2.
constexpr EngineGrid kGrids[] = {{"one engine", 2, {.tp = 2, .ep = 2}},
                                 {"two engines", 4, {.tp = 2, .ep = 2}},
                                 {"two attention groups", 4, {.tp = 2, .ep = 4}},
                                 {"two engines of two groups", 8, {.tp = 2, .ep = 4}}};

model::ModelSpec moe_spec() {
  return model::random_spec("glm4_moe",
                            {.vocab_size = 96,
                             .hidden_size = 32,
                             .intermediate_size = 40,
                             .head_dim = 8,
                             .max_positions = 128},
                            0.25);
}

GenerationRequest engine_request(std::span<const PromptGroup> groups) {
  return {.groups = groups,
          .n_samples_per_prompt = 4,
          .sampling = {.max_new_tokens = 20, .stop_token_ids = {2, 7}, .stop = {}},
          .seed = 77,
          .rollout = 3,
          .weight_version = 5,
          .label = {}};
}

// One rank's engine of a grid.
struct RankEngine {
  rollout::ShardedModel model;
  rollout::Engine engine;
  RankEngine(dist::Collective& world, const dist::GridSizes& sizes)
      : model(world, moe_spec(), sizes),
        engine(model.decoder, model.weights, {},
               TinyRollout::with_bounds({.max_running_requests = 4}), nullptr, 0, {},
               model.grid.groups()) {}
};

TEST(EnginesOfRanks, MakeTheSamplesOfOneRank) {
  const auto prompts = make_prompts(7);
  const auto groups = groups_of(prompts);
  std::string expected;
  dist::run_thread_ranks(1, [&](dist::Collective& world) {
    const model::RandomModel one(moe_spec(), {}, false, 2);
    rollout::Engine engine(one.decoder, one.weights, {}, TinyRollout::with_bounds({}), nullptr, 0);
    SeedGrader grader;
    expected = content(Generator(engine, dist::groups_of_one(), nullptr, world)
                           .generate(engine_request(groups), grader));
  });
  for (const EngineGrid& grid : kGrids) {
    std::vector<std::string> found(static_cast<size_t>(grid.world_size));
    dist::run_thread_ranks(grid.world_size, [&](dist::Collective& world) {
      RankEngine own(world, grid.sizes);
      Generator generator(own.engine, own.model.grid.groups(), nullptr, world);
      SeedGrader grader;
      for (int round = 0; round < 2; ++round)
        found[static_cast<size_t>(world.rank())] =
            content(generator.generate(engine_request(groups), grader));
    });
    for (size_t rank = 0; rank < found.size(); ++rank)
      EXPECT_TRUE(found[rank] == expected) << grid.name << ", rank " << rank;
  }
}

TEST(EnginesOfRanks, StopTogether) {
  const auto prompts = make_prompts(7);
  const auto groups = groups_of(prompts);
  for (const EngineGrid& grid : kGrids) {
    SCOPED_TRACE(grid.name);
    std::atomic<int> num_stopped = 0;
    dist::run_thread_ranks(grid.world_size, [&](dist::Collective& world) {
      RankEngine own(world, grid.sizes);
      Generator generator(own.engine, own.model.grid.groups(), nullptr, world);
      SeedGrader grader;
      GenerationRequest request = engine_request(groups);
      request.should_stop = [&] { return world.rank() + 1 == world.size(); };
      try {
        generator.generate(request, grader);
        ADD_FAILURE() << "rank " << world.rank() << " goes on";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.what();
        ++num_stopped;
      }
      EXPECT_FALSE(own.engine.has_work());
    });
    EXPECT_EQ(num_stopped, grid.world_size);
  }
}

TEST(EnginesOfRanks, GroupsInLockStepShareTheQueueEvenly) {
  const auto prompts = make_prompts(8);
  std::vector<rollout::GroupRequest> groups;
  std::vector<std::vector<text::TokenId>> tokens;  // borrowed by the requests
  for (const auto& prompt : prompts) tokens.push_back(prompt.tokens.unpack());
  for (const auto& ids : tokens) groups.push_back({ids, std::ssize(groups)});
  const rollout::GenerationJob job{
      .groups = groups,
      .n_samples_per_prompt = 1,
      .sampling = {.max_new_tokens = 20, .stop_token_ids = {}, .stop = {}}};
  std::array<std::vector<int64_t>, 4> finished;  // by rank: the counts that its callback received
  dist::run_thread_ranks(4, [&](dist::Collective& world) {
    RankEngine own(world, {.ep = 4});
    generate_on_ranks(own.engine, own.model.grid.groups(), job, world, {},
                      [&](const rollout::Completion&, int64_t num_finished) {
                        finished[static_cast<size_t>(world.rank())].push_back(num_finished);
                      });
  });
  std::vector<int64_t> all;
  for (const auto& of_rank : finished) {
    EXPECT_EQ(of_rank.size(), 2);
    EXPECT_TRUE(std::ranges::is_sorted(of_rank));
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  std::ranges::sort(all);
  EXPECT_EQ(all, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// The error occurs on the first rank of the last attention group, the only rank that takes this
// group's completions.
TEST(EnginesOfRanks, FailTogether) {
  const auto prompts = make_prompts(7);
  std::vector<rollout::GroupRequest> groups;
  std::vector<std::vector<text::TokenId>> tokens;  // borrowed by the requests
  for (const auto& prompt : prompts) tokens.push_back(prompt.tokens.unpack());
  for (const auto& ids : tokens) groups.push_back({ids, std::ssize(groups)});
  const rollout::GenerationJob job{
      .groups = groups,
      .n_samples_per_prompt = 2,
      .sampling = {.max_new_tokens = 20, .stop_token_ids = {}, .stop = {}}};
  for (const EngineGrid& grid : kGrids) {
    SCOPED_TRACE(grid.name);
    dist::run_thread_ranks(grid.world_size, [&](dist::Collective& world) {
      RankEngine own(world, grid.sizes);
      const int failing = world.size() - 2;
      try {
        generate_on_ranks(
            own.engine, own.model.grid.groups(), job, world, {}, [&](rollout::Completion, int64_t) {
              EXPECT_EQ(world.rank() % 2, 0) << "a completion of two ranks is taken twice";
              if (world.rank() == failing) throw Error(ErrorCode::kRun, "no room for a sample");
            });
        ADD_FAILURE() << "rank " << world.rank() << " goes on";
      } catch (const Error& error) {
        EXPECT_NE(error.message().find("no room for a sample"), std::string::npos) << error.what();
      }
      world.barrier();
    });
  }
}

}  // namespace
}  // namespace slimexx::rl

#include "rl/generation/work_source.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <string>

#include "rl/tiny_rollout.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rl {
namespace {

// Has nine groups; stops after `max_steps` steps of the engine.
class Leader : public rollout::WorkSource {
 public:
  explicit Leader(int64_t max_steps) : max_steps_(max_steps) {}
  bool is_stopped() override { return num_steps_++ >= max_steps_; }
  std::optional<int64_t> draw_group() override {
    if (next_ == 9) return std::nullopt;
    return (next_++ * 4) % 9;  // an order that no other rank can guess
  }

 private:
  int64_t max_steps_, num_steps_ = 0, next_ = 0;
};

// The own source of a rank that is not the leader: it must not be asked.
class Follower : public rollout::WorkSource {
 public:
  bool is_stopped() override {
    ADD_FAILURE() << "a follower decides when to stop";
    return false;
  }
  std::optional<int64_t> draw_group() override {
    ADD_FAILURE() << "a follower draws prompts";
    return std::nullopt;
  }
};

struct Heard {
  std::vector<std::pair<int64_t, std::vector<int32_t>>> completions;
  int64_t steps = 0;
};

// The groups that each rank of one engine of `num_ranks` ranks generates until the leader stops.
std::vector<Heard> drive_engine(int num_ranks, int64_t max_steps) {
  const auto prompts = make_prompts(9);
  std::vector<rollout::GroupRequest> groups;
  std::vector<std::vector<text::TokenId>> tokens;  // borrowed by the requests
  for (const auto& prompt : prompts) tokens.push_back(prompt.tokens.unpack());
  for (const auto& ids : tokens) groups.push_back({ids, std::ssize(groups)});
  const rollout::GenerationJob job{
      .groups = groups,
      .n_samples_per_prompt = 2,
      .sampling = {.max_new_tokens = 20, .stop_token_ids = {2, 7}, .stop = {}},
      .seed = 5};
  std::vector<Heard> heard(static_cast<size_t>(num_ranks));
  dist::run_thread_ranks(num_ranks, [&](dist::Collective& ranks) {
    TinyRollout tiny(ranks, {.max_running_requests = 4});
    Leader leader(max_steps);
    Follower follower;
    rollout::WorkSource& own =
        ranks.rank() == 0 ? static_cast<rollout::WorkSource&>(leader) : follower;
    EngineGroup group(ranks, own);
    Heard& mine = heard[static_cast<size_t>(ranks.rank())];
    group.run([&] {
      rollout::generate(tiny.engine, job, group, [&](rollout::Completion completion) {
        mine.completions.emplace_back(completion.id, std::move(completion.tokens));
      });
    });
    mine.steps = tiny.engine.stats().steps;
  });
  return heard;
}

TEST(EngineGroup, RanksOfAnEngineDoWhatTheirLeaderSays) {
  for (const int64_t max_steps : {int64_t{1} << 40, int64_t{0}, int64_t{17}}) {
    const Heard alone = drive_engine(1, max_steps)[0];
    EXPECT_EQ(alone.completions.size() == 18u, max_steps > 1000) << max_steps;
    for (const Heard& heard : drive_engine(2, max_steps)) {
      EXPECT_TRUE(heard.completions == alone.completions) << max_steps;
      EXPECT_EQ(heard.steps, alone.steps) << max_steps;
    }
  }
}

// If the leader's error did not reach the followers, they would wait until the rank watch ends the
// run.
TEST(EngineGroup, TheLeadersErrorReachesTheOthers) {
  for (const std::string place : {"draw", "step", "end"}) {
    std::array<std::string, 3> messages;
    dist::run_thread_ranks(3, [&](dist::Collective& ranks) {
      const bool is_leader = ranks.rank() == 0;
      Leader leader(int64_t{1} << 40);
      Follower follower;
      EngineGroup group(ranks, is_leader ? static_cast<rollout::WorkSource&>(leader) : follower);
      const auto fail_at = [&](const std::string& where) {
        if (is_leader && place == where)
          throw Error(ErrorCode::kEnvironment, "no memory at " + where, "add some", "host");
      };
      try {
        group.run([&] {
          for (int step = 0; step < 3; ++step) {
            if (step == 1) fail_at("draw");
            if (step == 2) fail_at("step");
            EXPECT_FALSE(group.is_stopped());
            EXPECT_TRUE(group.draw_group().has_value());
          }
          fail_at("end");  // when the others ask for nothing more
        });
        FAIL() << "rank " << ranks.rank() << " goes on";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
        EXPECT_EQ(error.hint(), "add some");
        messages[static_cast<size_t>(ranks.rank())] = error.message();
      }
      ranks.barrier();  // all ranks can continue together
    });
    for (const std::string& message : messages)
      EXPECT_EQ(message, "rank 0 of 3 failed: no memory at " + place);
  }
}

// Three groups of two ranks; each leader has work for a different number of steps.
TEST(EngineGroup, GroupsInLockStepMakeAsManyStepsAsTheLongest) {
  std::array<int, 6> steps{};
  dist::run_thread_ranks(6, [&](dist::Collective& engine) {
    const int number = engine.rank() / 2;
    const auto ranks = engine.split(number, engine.rank());
    Leader leader(int64_t{1} << 40);
    EngineGroup group(*ranks, leader, &engine);
    int& count = steps[static_cast<size_t>(engine.rank())];
    group.run([&] {
      while (group.goes_on(count < 3 + 2 * ((number + 1) % 3))) ++count;
    });
    EXPECT_TRUE(group.goes_on(engine.rank() == 5));
  });
  for (const int count : steps) EXPECT_EQ(count, 7);
}

// If the failure did not reach the other groups, they would wait for the failed group's next step.
TEST(EngineGroup, AFailureEndsAllGroupsInLockStep) {
  for (const std::string place : {"draw", "step", "alike"}) {
    std::array<std::string, 6> messages;
    dist::run_thread_ranks(6, [&](dist::Collective& engine) {
      const int number = engine.rank() / 2;
      const auto ranks = engine.split(number, engine.rank());
      Leader leader(int64_t{1} << 40);
      Follower follower;
      const bool leads = ranks->rank() == 0;
      EngineGroup group(*ranks, leads ? static_cast<rollout::WorkSource&>(leader) : follower,
                        &engine);
      const auto fail_at = [&](const std::string& where) {
        if (number == 1 && place == where && (leads || place == "alike"))
          throw Error(ErrorCode::kRun, "no memory at " + where);
      };
      try {
        group.run([&] {
          for (int step = 0; step < 3; ++step) {
            EXPECT_FALSE(group.is_stopped());
            if (step == 1) fail_at("draw");
            EXPECT_TRUE(group.draw_group().has_value());
            EXPECT_TRUE(group.goes_on(true));
            if (step == 1) fail_at("step");
            if (step == 1) fail_at("alike");
          }
        });
        ADD_FAILURE() << "rank " << engine.rank() << " goes on";
      } catch (const Error& error) {
        messages[static_cast<size_t>(engine.rank())] = error.message();
        EXPECT_TRUE(group.has_told());
      }
      engine.barrier();  // all ranks can continue together
    });
    for (const std::string& message : messages)
      EXPECT_EQ(message, "rank 2 of 6 failed: rank 0 of 2 failed: no memory at " + place);
  }
}

TEST(SharedQueue, EachGroupIsDrawnOnce) {
  std::array<std::atomic<int>, 50> drawn{};
  dist::run_thread_ranks(3, [&](dist::Collective& world) {
    SharedQueue queue(world, 50, {});
    while (const auto group = queue.draw_group()) ++drawn[static_cast<size_t>(*group)];
    EXPECT_FALSE(queue.is_stopped());
    EXPECT_FALSE(queue.ends_stopped());
  });
  for (const auto& count : drawn) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace slimexx::rl

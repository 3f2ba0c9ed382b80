// Tests the exchange of gradients in parts, on host memory: when each part is queued, and that
// overlap changes no bit. tests/train/grids/nccl_ranks.cpp tests devices.
#include <functional>

#include "cpu_context.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/thread_ranks.h"
#include "train/grids/spied_exchange.h"
#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

using tensor::Tensor;

// kPlain, kBehind: gradients are exchanged after backward, without and with a spy. kBeside: parts
// are exchanged during the next layer's attention, as over NCCL.
enum class Way { kPlain, kBehind, kBeside };

struct Case {
  std::string model;
  int num_ranks = 1;
  int64_t max_tokens = 50;
  std::string recompute = "none";
  std::string text() const {
    return model + ", " + std::to_string(num_ranks) + " ranks, " + std::to_string(max_tokens) +
           " tokens, recompute " + recompute;
  }
};

struct Outcome {
  std::vector<float> weights, gradients;
  double norm = 0;
  std::vector<std::vector<dist::Range>> calls;
};

std::vector<Outcome> run_training(const Case& c, Way way) {
  std::vector<Outcome> outcomes(static_cast<size_t>(c.num_ranks));
  dist::run_thread_ranks(c.num_ranks, [&](dist::Collective& communicator) {
    Outcome& own = outcomes[static_cast<size_t>(communicator.rank())];
    TinyPolicy policy(c.model);
    dist::Collective spied(std::make_unique<SpiedBackend>(
        communicator, way == Way::kBeside,
        [&](auto ranges) { own.calls.emplace_back(ranges.begin(), ranges.end()); }));
    TrainOptions options = packed(c.max_tokens);
    options.recompute_granularity = c.recompute;
    Trainer trainer = policy.trainer(communicator, way == Way::kPlain ? communicator : spied,
                                     options, {}, kAPartALayer);
    for (uint64_t step = 0; step < 2; ++step) {
      own.norm = trainer
                     .step(mixed_samples(7, 40 + step), full_loss(), 0.01,
                           [&] {
                             trainer.gather_gradients();
                             own.gradients = floats_of(flat_gradients(policy.store));
                           })
                     .gradient_norm;
    }
    own.weights = floats_of(flat_weights(policy.store));
  });
  return outcomes;
}

TEST(Exchange, OverlapChangesNoBit) {
  std::vector<Case> cases;
  for (const char* model : {"qwen3_tied_mqa", "qwen2_untied", "glm4_no_bias"}) {
    for (const int ranks : {2, 3}) cases.push_back({model, ranks});
    cases.push_back({model, 4, 4096});  // one microbatch: three ranks have none
  }
  cases.push_back({"qwen3_tied_mqa", 2, 50, "full"});
  for (const Case& c : cases) {
    const auto expected = run_training(c, Way::kPlain);
    for (const Way way : {Way::kBehind, Way::kBeside}) {
      const auto actual = run_training(c, way);
      for (size_t rank = 0; rank < actual.size(); ++rank) {
        const std::string where = c.text() + ", rank " + std::to_string(rank) + ", way " +
                                  std::to_string(static_cast<int>(way)) + ": ";
        const auto compare = [&](const std::vector<float>& a, const std::vector<float>& b) {
          EXPECT_EQ(where + first_difference(a, b), where);
        };
        compare(actual[rank].weights, expected[0].weights);
        compare(actual[rank].gradients, expected[0].gradients);
        EXPECT_EQ(actual[rank].norm, expected[0].norm) << where;
        EXPECT_EQ(actual[rank].calls, actual[0].calls) << where;
      }
    }
  }
}

// Each part is reduce-scattered once; afterwards all parts of gradients and weights are gathered at
// once.
TEST(Exchange, EveryPartOnceThenTheGathers) {
  const Case c{"qwen2_untied", 3};
  const auto outcome = run_training(c, Way::kBeside)[0];
  TinyPolicy policy(c.model);
  std::vector<dist::Range> parts;
  for (const GradientPart& part : list_gradient_parts(policy.store, policy.spec, 1))
    parts.push_back(part.range);
  const auto slices = split_parts(parts, c.num_ranks);
  std::vector<std::vector<dist::Range>> step;
  for (size_t first = 0; first < slices.size(); first += 3)
    step.emplace_back(slices.begin() + static_cast<ptrdiff_t>(first),
                      slices.begin() + static_cast<ptrdiff_t>(first) + 3);
  ASSERT_EQ(step.size(), 4u);
  step.push_back(slices);
  step.push_back(slices);
  auto expected = step;
  expected.insert(expected.end(), step.begin(), step.end());
  EXPECT_EQ(outcome.calls, expected);
}

// With one microbatch, the head's gradients are handed over before the layers' exist. A group that
// blocks the caller gets them after backward.
TEST(Exchange, StartsWhileBackwardIsAtWork) {
  for (const bool is_queued : {true, false}) {
    dist::run_thread_ranks(2, [&](dist::Collective& communicator) {
      TinyPolicy policy;
      const Tensor probe =
          policy.store.gradient(policy.store.find("layers.0.attention.qkv.weight"));
      std::vector<bool> was_zero;
      dist::Collective spied(std::make_unique<SpiedBackend>(
          communicator, is_queued, [&](std::span<const dist::Range>) {
            was_zero.push_back(std::all_of(probe.f32(), probe.f32() + probe.num_elements(),
                                           [](float g) { return g == 0; }));
          }));
      Trainer trainer = policy.trainer(communicator, spied, packed(4096), {}, kAPartALayer);
      const Sample sample = mixed_samples(1, 50)[0];
      trainer.step({&sample, 1}, full_loss(), 0.01);
      ASSERT_EQ(was_zero.size(), 5u);  // head, two layers, embedding; weights
      double at_work[1] = {was_zero[0] && was_zero[1] && !was_zero[2] ? 1.0 : 0.0};
      dist::all_reduce_sum(communicator, at_work);
      // On the rank with the microbatch.
      EXPECT_EQ(at_work[0], is_queued ? 1 : 0);
    });
  }
}

// Ranks hand over different numbers of parts early.
TEST(Exchange, RanksMayStartAtDifferentTimes) {
  for (const int64_t early : {0, 2, 5}) {
    dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
      TinyPolicy policy, other;
      const int64_t n = policy.store.num_elements();
      std::vector<GradientPart> parts;
      for (int64_t end = n; end > 0; end -= std::min<int64_t>(end, 1600))
        parts.push_back({{std::max<int64_t>(0, end - 1600), end}});
      ASSERT_GT(parts.size(), 5u);
      const dist::Groups groups = dist::data_parallel_groups(communicator);
      ShardedAdamW by_parts(policy.store, communicator, groups, {}, {}, parts);
      ShardedAdamW at_the_end(other.store, communicator, groups, {}, {}, parts);
      for (int64_t i = 0; i < n; ++i) {
        flat_gradients(policy.store).f32()[i] = flat_gradients(other.store).f32()[i] =
            std::sin(static_cast<float>(i + 7 * communicator.rank()));
      }
      for (int64_t part = 0; part < early - communicator.rank(); ++part)
        by_parts.start_gradient_part(cpu_context(), part);
      const double norm = by_parts.reduce_gradients(cpu_context());
      EXPECT_EQ(norm, at_the_end.reduce_gradients(cpu_context()));
      by_parts.step(cpu_context(), 0.01, norm);
      at_the_end.step(cpu_context(), 0.01, norm);
      EXPECT_EQ(first_difference(floats_of(flat_weights(policy.store)),
                                 floats_of(flat_weights(other.store))),
                "");
    });
  }
}

}  // namespace
}  // namespace slimexx::train

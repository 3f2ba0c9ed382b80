#include "slimexx/train/trainer.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/ops/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "train/tiny_policy.h"

namespace slimexx::train {
namespace {

// Bound for metrics and gradients (2-norm) over packings and ranks, due to another order of f32
// sums.
constexpr double kRounding = 1e-5;

struct Variation {
  std::string name;
  int num_ranks = 1;
  TrainOptions options = {};
  bool reversed = false;
};

struct Outcome {
  StepResult result;
  std::vector<float> gradients, weights;
};

Outcome run_step(const Variation& v, std::vector<Sample> samples, const StepLoss& loss,
                 const OptimizerOptions& optimizer = {}, double learning_rate = 0) {
  if (v.reversed) std::ranges::reverse(samples);
  Outcome outcome;
  dist::run_thread_ranks(v.num_ranks, [&](dist::Collective& communicator) {
    TinyPolicy policy;
    Trainer trainer = policy.trainer(communicator, v.options, optimizer);
    Outcome own;
    own.result = trainer.step(samples, loss, learning_rate, [&] {
      trainer.gather_gradients();
      own.gradients = floats_of(flat_gradients(policy.store));
    });
    own.weights = floats_of(flat_weights(policy.store));
    if (communicator.rank() == 0) outcome = std::move(own);
  });
  return outcome;
}

std::vector<Variation> variations() {
  std::vector<Variation> all;
  for (const int64_t tokens : {1, 40, 100})
    all.push_back({"max_tokens " + std::to_string(tokens), 1, packed(tokens)});
  for (const int64_t size : {1, 3}) {
    TrainOptions options;
    options.use_dynamic_batch_size = false;
    options.micro_batch_size = size;
    all.push_back({"micro_batch " + std::to_string(size), 1, options});
  }
  all.push_back({"reversed", 1, packed(50), true});
  TrainOptions recompute;
  recompute.recompute_granularity = "full";
  all.push_back({"recompute", 1, recompute});
  for (const int ranks : {2, 3, 4}) {
    for (const bool balance : {true, false}) {
      all.push_back({std::to_string(ranks) + (balance ? " ranks, balanced" : " ranks, in turn"),
                     ranks, packed(50, balance)});
    }
  }
  // Fewer microbatches than ranks: some ranks are idle.
  all.push_back({"idle ranks", 4, packed(4096)});
  return all;
}

void expect_close(const Outcome& actual, const Outcome& expected, const std::string& what) {
  for (size_t m = 0; m < static_cast<size_t>(ops::kNumLossMetrics); ++m) {
    const double a = actual.result.metrics[m], e = expected.result.metrics[m];
    EXPECT_NEAR(a, e, kRounding * std::max(1.0, std::abs(e))) << what << ", metric " << m;
  }
  EXPECT_NEAR(actual.result.gradient_norm / expected.result.gradient_norm, 1, kRounding) << what;
  EXPECT_LT(relative_distance(actual.gradients, expected.gradients), kRounding) << what;
  EXPECT_EQ(actual.result.num_tokens, expected.result.num_tokens) << what;
  EXPECT_EQ(actual.result.flops, expected.result.flops) << what;
}

TEST(Trainer, LossAndGradientsDoNotDependOnPackingOrderOrRanks) {
  const auto samples = mixed_samples(12, 7);
  for (const ops::LossKind kind : {ops::LossKind::kClip, ops::LossKind::kGspo}) {
    for (const bool per_token : {false, true}) {
      StepLoss loss = full_loss();
      loss.policy.kind = kind;
      loss.per_token_loss = per_token;
      const Outcome expected = run_step({"whole", 1, packed(4096)}, samples, loss);
      EXPECT_EQ(expected.result.num_microbatches, 1);
      EXPECT_GT(expected.result.gradient_norm, 1e-3);
      for (const Variation& v : variations())
        expect_close(run_step(v, samples, loss), expected, v.name);
    }
  }
}

// Log-probs are equal to the last bit for any packing and number of ranks.
TEST(Trainer, LogProbsAreTheSameBitsForAnyPackingAndRanks) {
  const auto samples = mixed_samples(12, 8);
  std::vector<TokenScores> expected;
  std::vector<Variation> all = variations();
  all.insert(all.begin(), Variation{"whole", 1, packed(4096)});
  for (const Variation& v : all) {
    std::mutex mutex;
    dist::run_thread_ranks(v.num_ranks, [&](dist::Collective& communicator) {
      TinyPolicy policy;
      const auto scores = policy.trainer(communicator, v.options)
                              .compute_log_probs(policy.decoder, policy.store, samples);
      const std::lock_guard lock(mutex);
      if (expected.empty()) expected = scores;
      ASSERT_EQ(scores.size(), samples.size());
      for (size_t i = 0; i < scores.size(); ++i) {
        const std::string where = v.name + ", rank " + std::to_string(communicator.rank()) +
                                  ", sample " + std::to_string(i) + ", ";
        EXPECT_EQ(where + first_difference(scores[i].log_probs, expected[i].log_probs), where);
        EXPECT_EQ(where + first_difference(scores[i].entropies, expected[i].entropies), where);
      }
    });
  }
}

// Computes the aggregation from log-probs: a masked sample counts in the per-sample mean.
TEST(Trainer, AggregatesPerSampleOrPerToken) {
  const auto samples = mixed_samples(6, 9);
  dist::Collective communicator;
  TinyPolicy policy;
  const auto scores =
      policy.trainer(communicator).compute_log_probs(policy.decoder, policy.store, samples);
  double of_samples = 0, sum = 0, tokens = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    double own = 0, count = 0;
    for (size_t t = 0; t < samples[i].loss_mask.size(); ++t) {
      if (samples[i].loss_mask[t] == 0) continue;
      own -= scores[i].log_probs[t];
      count += 1;
    }
    of_samples += own / std::max(count, 1.0) / static_cast<double>(samples.size());
    sum += own, tokens += count;
  }
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  const Outcome by_sample = run_step({"per sample", 2, packed(40)}, samples, loss);
  EXPECT_NEAR(by_sample.result.metric(ops::LossMetric::kLoss), of_samples, 1e-5);
  EXPECT_EQ(by_sample.result.metric(ops::LossMetric::kTokens), tokens);
  loss.per_token_loss = true;
  const Outcome by_token = run_step({"per token", 2, packed(40)}, samples, loss);
  EXPECT_NEAR(by_token.result.metric(ops::LossMetric::kLoss), sum / tokens, 1e-5);
  loss = {.policy = loss.policy, .token_divisor = 50};
  const Outcome by_constant = run_step({"by a constant", 2, packed(40)}, samples, loss);
  EXPECT_NEAR(by_constant.result.metric(ops::LossMetric::kLoss),
              sum / (50 * static_cast<double>(samples.size())), 1e-5);
}

// Without old log-probs the policy's own are used, so first-step checks hold exactly.
TEST(Trainer, FirstStepHasRatioOneAndNoLogProbDifference) {
  auto samples = mixed_samples(8, 10);
  {
    dist::Collective communicator;
    TinyPolicy policy;
    const auto scores = policy.trainer(communicator, packed(1))
                            .compute_log_probs(policy.decoder, policy.store, samples);
    for (size_t i = 0; i < samples.size(); ++i) {
      samples[i].old_log_probs.clear();
      samples[i].rollout_log_probs = samples[i].ref_log_probs = scores[i].log_probs;
    }
  }
  StepLoss loss = full_loss();
  loss.per_token_loss = true;
  for (const int ranks : {1, 3}) {
    const StepResult r = run_step({"", ranks, packed(60)}, samples, loss).result;
    EXPECT_EQ(r.metric(ops::LossMetric::kLogProbMismatches), 0);
    EXPECT_EQ(r.metric(ops::LossMetric::kLogProbMaxDiff), 0);
    EXPECT_EQ(r.metric(ops::LossMetric::kKlLoss), 0);
    EXPECT_EQ(r.metric(ops::LossMetric::kPpoKl), 0);
    EXPECT_EQ(r.metric(ops::LossMetric::kClipFraction), 0);
    EXPECT_NEAR(r.metric(ops::LossMetric::kRatio), 1, 1e-6);
    EXPECT_NEAR(r.metric(ops::LossMetric::kTis), 1, 1e-6);
  }
}

// Reduced over ranks by maximum, not by sum.
TEST(Trainer, LargestLogProbDifferenceIsAMaximumOverRanks) {
  const auto samples = mixed_samples(8, 12);
  const Outcome one = run_step({"one", 1, packed(4096)}, samples, full_loss());
  const Outcome three = run_step({"three", 3, packed(30)}, samples, full_loss());
  EXPECT_GT(one.result.metric(ops::LossMetric::kLogProbMaxDiff), 0);
  EXPECT_EQ(three.result.metric(ops::LossMetric::kLogProbMaxDiff),
            one.result.metric(ops::LossMetric::kLogProbMaxDiff));
}

TEST(Trainer, NanGradientSkipsTheStep) {
  const auto good = mixed_samples(6, 13);
  for (const float poison :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto bad = good;
    for (size_t t = 0; t < bad[4].loss_mask.size(); ++t) bad[4].loss_mask[t] = 1;
    bad[4].advantages[0] = poison;
    for (const int ranks : {1, 3}) {
      dist::run_thread_ranks(ranks, [&](dist::Collective& communicator) {
        TinyPolicy policy, fresh;
        const TrainOptions options = packed(30);
        Trainer trainer = policy.trainer(communicator, options);
        const auto weights = floats_of(flat_weights(policy.store));
        const auto master = floats_of(trainer.optimizer().groups()[0].master);
        const StepResult skipped = trainer.step(bad, full_loss(), 0.01);
        EXPECT_TRUE(skipped.skipped);
        EXPECT_FALSE(std::isfinite(skipped.gradient_norm));
        EXPECT_EQ(first_difference(floats_of(flat_weights(policy.store)), weights), "");
        EXPECT_EQ(first_difference(floats_of(trainer.optimizer().groups()[0].master), master), "");
        EXPECT_EQ(trainer.optimizer().num_steps(), 0);
        for (const float m : floats_of(trainer.optimizer().groups()[0].exp_avg)) ASSERT_EQ(m, 0);
        // The next step equals that of a run without the bad batch.
        Trainer other = fresh.trainer(communicator, options);
        EXPECT_FALSE(trainer.step(good, full_loss(), 0.01).skipped);
        EXPECT_FALSE(other.step(good, full_loss(), 0.01).skipped);
        EXPECT_EQ(first_difference(floats_of(flat_weights(policy.store)),
                                   floats_of(flat_weights(fresh.store))),
                  "");
        EXPECT_NE(first_difference(floats_of(flat_weights(policy.store)), weights), "");
      });
    }
  }
}

// The same calls give the same bytes, on one rank and on several; all ranks hold the same weights.
TEST(Trainer, IsDeterministic) {
  for (const int ranks : {1, 3}) {
    std::vector<std::vector<float>> runs;
    for (int run = 0; run < 2; ++run) {
      std::vector<std::vector<float>> weights(static_cast<size_t>(ranks));
      dist::run_thread_ranks(ranks, [&](dist::Collective& communicator) {
        TinyPolicy policy;
        Trainer trainer = policy.trainer(communicator, packed(40));
        for (uint64_t step = 0; step < 3; ++step)
          trainer.step(mixed_samples(6, 20 + step), full_loss(), 0.01);
        weights[static_cast<size_t>(communicator.rank())] = floats_of(flat_weights(policy.store));
      });
      for (const auto& own : weights) EXPECT_EQ(first_difference(own, weights[0]), "");
      runs.push_back(weights[0]);
    }
    EXPECT_EQ(first_difference(runs[0], runs[1]), "") << ranks << " ranks";
  }
}

// A step lowers its loss: checks signs and scales of the whole chain.
TEST(Trainer, StepsLowerTheLoss) {
  const auto samples = mixed_samples(6, 30);
  dist::Collective communicator;
  TinyPolicy policy;
  Trainer trainer = policy.trainer(communicator);
  StepLoss loss;
  loss.policy.kind = ops::LossKind::kSft;
  double before = 0, after = 0;
  for (int step = 0; step < 20; ++step) {
    after = trainer.step(samples, loss, 0.01).metric(ops::LossMetric::kLoss);
    if (step == 0) before = after;
  }
  EXPECT_LT(after, 0.5 * before);
}

// With three samples on eight ranks, all run the same number of microbatches. The step has the bits
// of three ranks with one sample each: idle ranks add zero.
TEST(Trainer, RanksWithoutSamplesRunAsManyMicrobatches) {
  const auto samples = mixed_samples(3, 33);
  for (const std::string recompute : {"none", "full"}) {
    TrainOptions options = packed(1);
    options.recompute_granularity = recompute;
    OptimizerOptions optimizer;
    optimizer.clip_grad = 0;  // owners sum the norm, and their number differs
    const Outcome expected = run_step({"", 3, options}, samples, full_loss(), optimizer, 0.01);
    std::vector<int64_t> counts(8);
    std::vector<std::vector<float>> weights(8);
    dist::run_thread_ranks(8, [&](dist::Collective& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      TinyPolicy policy;
      Trainer trainer = policy.trainer(communicator, options, optimizer);
      // Values left by an earlier use of the memory must not count.
      std::fill_n(flat_gradients(policy.store).f32(), policy.store.num_elements(), 7.0f);
      for (const auto& info : policy.store.infos()) {
        const tensor::Tensor gradient = policy.store.gradient(info.id);
        std::fill(gradient.f32() + gradient.num_elements(),
                  gradient.f32() + (gradient.num_elements() + 15) / 16 * 16, 0.0f);
      }
      const StepResult result = trainer.step(samples, full_loss(), 0.01);
      EXPECT_EQ(result.num_microbatches, 3);
      EXPECT_GT(result.gradient_norm, 0);
      counts[rank] = result.microbatches_per_rank;
      weights[rank] = floats_of(flat_weights(policy.store));
      const auto scores = trainer.compute_log_probs(policy.decoder, policy.store, samples);
      EXPECT_EQ(scores.size(), samples.size());
    });
    EXPECT_EQ(counts, std::vector<int64_t>(8, 1));
    for (const auto& own : weights) EXPECT_EQ(first_difference(own, expected.weights), "");
  }
}

// Costs are unequal, so ranks get different numbers of microbatches; the lists are padded to equal
// length.
TEST(Trainer, EveryRankRunsTheSameNumberOfMicrobatches) {
  std::vector<Sample> samples = mixed_samples(7, 34);
  for (Sample* sample : {&samples[0], &samples[1]}) {  // two samples cost more than the others
    const std::vector<int32_t> prompt(70, 5);
    sample->tokens.insert(sample->tokens.begin(), prompt.begin(), prompt.end());
  }
  std::vector<int64_t> counts(3);
  dist::run_thread_ranks(3, [&](dist::Collective& communicator) {
    TinyPolicy policy;
    counts[static_cast<size_t>(communicator.rank())] = policy.trainer(communicator, packed(1))
                                                           .step(samples, full_loss(), 0.01)
                                                           .microbatches_per_rank;
  });
  EXPECT_EQ(counts, std::vector<int64_t>(3, 5)) << "one rank has the five light ones";
}

// A sample above the capacity gets its own microbatch, untruncated.
TEST(Trainer, NothingIsTruncated) {
  const auto samples = mixed_samples(5, 31);
  const Outcome out = run_step({"", 1, packed(1)}, samples, full_loss());
  EXPECT_EQ(out.result.num_microbatches, 5);
  int64_t tokens = 0;
  for (const auto& s : samples) tokens += static_cast<int64_t>(s.tokens.size());
  EXPECT_EQ(out.result.num_tokens, tokens);
  EXPECT_EQ(out.result.packed_room_tokens, tokens) << "each has room for its sample";
  const Outcome roomy = run_step({"", 2, packed(4096)}, samples, full_loss());
  EXPECT_EQ(roomy.result.packed_room_tokens, 4096) << "the other rank's empty one does not count";
}

}  // namespace
}  // namespace slimexx::train

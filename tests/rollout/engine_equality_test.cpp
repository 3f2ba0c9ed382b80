// E1 and E2 of the numeric contract: a request's tokens and log-probs are bit-identical however the
// engine runs it (batch, chunks, pages, recorded steps, preemption), and equal to those of
// training.
#include <cstdio>
#include <set>

#include "rollout/engine_case.h"

namespace slimexx::rollout {
namespace {

class EngineEquality : public EngineSuite {
 protected:
  void SetUp() override {
    EngineSuite::SetUp();
    if (IsSkipped()) return;
    requests_ = mixed_requests(7, 21, 61);
    static std::map<std::string, std::vector<Completion>> by_family;
    if (!by_family.contains(GetParam().family))
      by_family[GetParam().family] = each_alone(requests_);
    expected_ = by_family[GetParam().family];
  }

  // Runs all requests together and compares with each alone; returns the statistics.
  EngineStats run(const EngineOptions& options, const std::string& what,
                  bool backwards = false) const {
    Engine together = engine(options);
    std::vector<Request> requests = requests_;
    if (backwards) std::ranges::reverse(requests);
    std::vector<Completion> results = generate_all(together, requests);
    if (backwards) std::ranges::reverse(results);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected_[i], what);
    const EngineStats& stats = together.stats();
    std::printf(
        "%-26s steps %4ld, running %2ld, batch %3ld, partial chunks %4ld, cached %4ld, dropped "
        "%2ld, preemptions %3ld, recomputed %5ld, pages %ld of %ld\n",
        what.c_str(), stats.steps, stats.max_running, stats.max_batch_tokens, stats.partial_chunks,
        stats.cached_tokens, stats.dropped_tokens, stats.preemptions, stats.recomputed_tokens,
        stats.peak_pages, stats.num_pages);
    EXPECT_GT(stats.max_running, what == "chunk 1" ? 0 : 1) << what;
    return stats;
  }

  std::vector<Request> requests_;
  std::vector<Completion> expected_;
};

TEST_P(EngineEquality, AnyBatchChunkPageCacheAndOrder) {
  EXPECT_EQ(run(roomy(), "batched").partial_chunks, 0);
  for (const int64_t chunk : {1, 7, 64}) {
    EngineOptions options = roomy();
    options.chunked_prefill_size = chunk;
    const EngineStats stats = run(options, "chunk " + std::to_string(chunk));
    EXPECT_GT(stats.partial_chunks, 0);
    EXPECT_EQ(stats.max_batch_tokens, chunk);
  }
  for (const int64_t page : GetParam().pages) {
    for (const bool cache : {true, false}) {
      EngineOptions options = roomy();
      options.page_tokens = page;
      options.enable_prefix_cache = cache;
      const std::string what = "page " + std::to_string(page) + (cache ? ", shared" : ", own");
      const EngineStats stats = run(options, what);
      EXPECT_EQ(stats.cached_tokens > 0, cache && page < max_sequence()) << what;
    }
  }
  EXPECT_GT(run(roomy(), "backwards", true).cached_tokens, 0);
  EngineOptions narrow = roomy();
  narrow.max_running_requests = 3;
  EXPECT_EQ(run(narrow, "three at once").max_running, 3);
}

TEST_P(EngineEquality, PreemptionChangesNothing) {
  EngineStats sum[2];  // index: whether pages are shared
  for (const int64_t total : {max_sequence(), 2 * max_sequence()}) {
    for (const bool cache : {true, false}) {
      for (const int64_t chunk : {9, 2048}) {
        EngineOptions options = roomy();
        options.max_total_tokens = total;
        options.page_tokens = std::max<int64_t>(smallest_page(), 4);
        options.chunked_prefill_size = chunk;
        options.enable_prefix_cache = cache;
        const std::string what = "cache " + std::to_string(total) + (cache ? ", shared" : ", own") +
                                 ", " + std::to_string(chunk);
        const EngineStats stats = run(options, what);
        EXPECT_GE(stats.peak_pages, stats.num_pages - 1) << what;
        EXPECT_TRUE(stats.preemptions > 0 || total > max_sequence()) << what;
        sum[cache].preemptions += stats.preemptions;
        sum[cache].recomputed_tokens += stats.recomputed_tokens;
      }
    }
  }
  EXPECT_GT(sum[false].preemptions, 5);
  EXPECT_GT(sum[false].recomputed_tokens, 100);
  EXPECT_GT(sum[true].preemptions, 0);
}

TEST_P(EngineEquality, TrainingComputesTheSameBits) {
  EngineOptions options = roomy();
  options.max_total_tokens = max_sequence();
  options.page_tokens = std::max<int64_t>(smallest_page(), 4);
  options.chunked_prefill_size = 33;
  Engine small = engine(options);
  const std::vector<Completion> all = generate_all(small, requests_);
  EXPECT_GT(small.stats().preemptions, 0);
  EXPECT_GT(small.stats().cached_tokens, 0);
  EXPECT_GT(small.stats().partial_chunks, 0);
  for (const float temperature : {1.0f, 0.7f}) {
    std::vector<Request> requests;
    std::vector<Completion> completions;
    std::vector<float> reported;
    for (size_t i = 0; i < all.size(); ++i) {
      if (requests_[i].sampling.temperature != temperature) continue;
      requests.push_back(requests_[i]);
      completions.push_back(all[i]);
      reported.insert(reported.end(), all[i].log_probs.begin(), all[i].log_probs.end());
    }
    const std::vector<float> trained =
        training_log_probs(*model_, pack(requests, completions), temperature);
    ASSERT_EQ(trained.size(), reported.size());
    ASSERT_GT(trained.size(), 150u);
    for (size_t i = 0; i < trained.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(reported[i]), std::bit_cast<uint32_t>(trained[i]))
          << "temperature " << temperature << ", response token " << i << " of all: rollout "
          << reported[i] << ", training " << trained[i];
    std::printf("temperature %.1f: %zu log-probs equal\n", static_cast<double>(temperature),
                trained.size());
  }
}

// N6 and N9: one rank can compute the sums of two tensor-parallel ranks, in generation as in
// training.
TEST_P(EngineEquality, LeavesAreTheSameBitsInTraining) {
  model::ModelSpec even = GetParam().spec;
  even.vocab_size = (even.vocab_size + 15) / 16 * 16;  // shards on GPUs are multiples of 8
  RandomModel two_leaves(even, device(), false, 2), plain(even, device(), false);
  Engine engine(two_leaves.decoder, two_leaves.weights, device(), roomy(), nullptr, 0);
  std::vector<Request> requests;
  for (const Request& request : requests_)
    if (request.sampling.temperature == 0.7f) requests.push_back(request);
  const std::vector<Completion> completions = generate_all(engine, requests);
  std::vector<float> reported;
  for (const Completion& completion : completions)
    reported.insert(reported.end(), completion.log_probs.begin(), completion.log_probs.end());
  const PackedSamples packed = pack(requests, completions);
  ASSERT_GT(reported.size(), 100u);
  EXPECT_EQ(training_log_probs(two_leaves, packed, 0.7f), reported);
  EXPECT_NE(training_log_probs(plain, packed, 0.7f), reported);  // otherwise leaves had no effect
}

// On a device, decode steps are recorded (as CUDA graphs) for some batch sizes; other batches are
// padded.
TEST_P(EngineEquality, RecordedStepsOfPaddedBatchesChangeNothing) {
  std::vector<Request> requests;
  for (int i = 0; i < 33; ++i) {
    Request request = requests_[static_cast<size_t>(i) % requests_.size()];
    request.id = i;
    request.sampling.max_new_tokens = 12;
    request.sampling.stop_token_ids.clear();
    request.name.group += uint64_t{9} << 32;
    requests.push_back(std::move(request));
  }
  const std::vector<Completion> alone = each_alone(requests);
  for (const int64_t most : {256, 33})
    for (const size_t count : {3, 5, 7, 33}) {
      EngineOptions options = roomy();
      options.max_running_requests = most;
      Engine together = engine(options);
      for (int round = 0; round < 2; ++round) {  // the second one launches recorded steps
        const auto results = generate_all(
            together, {requests.begin(), requests.begin() + static_cast<int64_t>(count)});
        EXPECT_EQ(together.stats().max_running, static_cast<int64_t>(count));
        for (size_t i = 0; i < results.size(); ++i)
          expect_same(results[i], alone[i],
                      std::to_string(count) + " of " + std::to_string(most) + ", round " +
                          std::to_string(round));
      }
    }
}

TEST_P(EngineEquality, NothingIsAllocatedOnceWarm) {
  Engine warm = engine(roomy());
  // A decode step is recorded at its second use, in each of the two memory sets.
  for (int round = 0; round < 4; ++round) generate_all(warm, requests_);
  const tensor::AllocationCounters before = tensor::allocation_counters(device());
  for (int round = 0; round < 3; ++round) generate_all(warm, requests_);
  const tensor::AllocationCounters after = tensor::allocation_counters(device());
  EXPECT_EQ(after.num_allocations, before.num_allocations);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
  EXPECT_EQ(after.num_graphs, before.num_graphs);
  EXPECT_EQ(after.num_graphs > 0, !device().is_cpu());
}

// While the cache memory is lent out between requests, others may write anything there, including
// NaNs.
TEST_P(EngineEquality, LentMemoryLeavesNoTrace) {
  Engine lender = engine(roomy());
  for (int round = 0; round < 2; ++round) {
    const tensor::Tensor cache = lender.lend_cache();
    const std::vector<char> spoiled(static_cast<size_t>(cache.size_bytes()), '\xff');
    tensor::upload(tensor::compute_stream(device()), cache, spoiled.data());
    lender.on_weights_updated();
    const std::vector<Completion> results = generate_all(lender, requests_);
    for (size_t i = 0; i < results.size(); ++i)
      expect_same(results[i], expected_[i], "after a loan");
  }
}

// Equal bits prove nothing if the model ignores the prompt.
TEST_P(EngineEquality, TheModelIsNotDegenerate) {
  std::set<std::vector<TokenId>> distinct;
  std::set<TokenId> tokens;
  double sum = 0;
  int64_t count = 0;
  for (const Completion& completion : expected_) {
    distinct.insert(completion.tokens);
    tokens.insert(completion.tokens.begin(), completion.tokens.end());
    for (const float log_prob : completion.log_probs) sum += static_cast<double>(log_prob);
    count += static_cast<int64_t>(completion.log_probs.size());
  }
  EXPECT_GT(distinct.size(), expected_.size() * 3 / 4);
  EXPECT_GT(tokens.size(), 30u);
  EXPECT_LT(sum / static_cast<double>(count), -0.2);
}

INSTANTIATE_TEST_SUITE_P(Families, EngineEquality, testing::ValuesIn(engine_cases()), case_name);

}  // namespace
}  // namespace slimexx::rollout

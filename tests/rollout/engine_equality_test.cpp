// E1 and E2 of the numeric contract: what a request generates, to the last bit of its log-probs,
// depends neither on how the engine ran it nor on whether generation or training computed it.
#include <algorithm>
#include <set>

#include "tiny_model.h"

namespace slimexx::rollout {
namespace {

class EngineEquality : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t kMaxSequence = 116;  // crosses the attention's block of 64 keys

  EngineEquality() : tiny_(tiny_spec(GetParam())), requests_(mixed_requests(7, 21, 61)) {
    EngineOptions options = roomy();
    options.enable_prefix_cache = false;
    Engine engine(tiny_.transformer, tiny_.weights, tiny_.device, options, nullptr, 0);
    for (const Request& request : requests_)
      expected_.push_back(generate_all(engine, {request}).front());
    EXPECT_EQ(engine.stats().preemptions + engine.stats().cached_tokens, 0);
    EXPECT_EQ(engine.stats().max_running, 1);
  }

  static EngineOptions roomy() {
    EngineOptions options;
    options.max_total_tokens = 8000;
    options.max_sequence_tokens = kMaxSequence;
    return options;
  }

  // Runs all requests together and compares with each alone; returns what happened.
  EngineStats run(const EngineOptions& options, const std::string& what, bool backwards = false) {
    Engine engine(tiny_.transformer, tiny_.weights, tiny_.device, options, nullptr, 0);
    std::vector<Request> requests = requests_;
    if (backwards) std::ranges::reverse(requests);
    std::vector<Generation> results = generate_all(engine, requests);
    if (backwards) std::ranges::reverse(results);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected_[i], what);
    const EngineStats& stats = engine.stats();
    std::printf(
        "%-26s steps %4ld, running %2ld, batch %3ld, partial chunks %4ld, cached %4ld, "
        "preemptions %3ld, recomputed %5ld, pages %ld of %ld\n",
        what.c_str(), stats.steps, stats.max_running, stats.max_batch_tokens, stats.partial_chunks,
        stats.cached_tokens, stats.preemptions, stats.recomputed_tokens, stats.peak_pages,
        stats.num_pages);
    EXPECT_GT(stats.max_running, what == "chunk 1" ? 0 : 1) << what;
    return stats;
  }

  TinyModel tiny_;
  std::vector<Request> requests_;
  std::vector<Generation> expected_;
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
  for (const int64_t page : {1, 4, 16}) {
    for (const bool cache : {true, false}) {
      EngineOptions options = roomy();
      options.page_tokens = page;
      options.enable_prefix_cache = cache;
      const std::string what = "page " + std::to_string(page) + (cache ? ", shared" : ", own");
      const EngineStats stats = run(options, what);
      EXPECT_EQ(stats.cached_tokens > 0, cache) << what;
    }
  }
  EXPECT_GT(run(roomy(), "backwards", true).cached_tokens, 0);
  EngineOptions narrow = roomy();
  narrow.max_running_requests = 3;
  EXPECT_EQ(run(narrow, "three at once").max_running, 3);
}

TEST_P(EngineEquality, PreemptionChangesNothing) {
  for (const int64_t total : {kMaxSequence, 2 * kMaxSequence}) {
    for (const bool cache : {true, false}) {
      for (const int64_t chunk : {9, 2048}) {
        EngineOptions options = roomy();
        options.max_total_tokens = total;
        options.page_tokens = 4;
        options.chunked_prefill_size = chunk;
        options.enable_prefix_cache = cache;
        const std::string what = "cache " + std::to_string(total) + (cache ? ", shared" : ", own") +
                                 ", " + std::to_string(chunk);
        const EngineStats stats = run(options, what);
        EXPECT_GT(stats.preemptions, 0) << what;
        EXPECT_GT(stats.recomputed_tokens, 0) << what;
        EXPECT_GE(stats.peak_pages, stats.num_pages - 1) << what;
      }
    }
  }
}

TEST_P(EngineEquality, TrainingComputesTheSameBits) {
  EngineOptions options = roomy();
  options.max_total_tokens = 2 * kMaxSequence;
  options.page_tokens = 4;
  options.chunked_prefill_size = 33;
  Engine engine(tiny_.transformer, tiny_.weights, tiny_.device, options, nullptr, 0);
  const std::vector<Generation> all = generate_all(engine, requests_);
  EXPECT_GT(engine.stats().preemptions, 0);
  EXPECT_GT(engine.stats().cached_tokens, 0);
  EXPECT_GT(engine.stats().partial_chunks, 0);
  for (const float temperature : {1.0f, 0.7f}) {
    std::vector<Request> requests;
    std::vector<Generation> generations;
    std::vector<float> reported;
    for (size_t i = 0; i < all.size(); ++i) {
      if (requests_[i].sampling.temperature != temperature) continue;
      requests.push_back(requests_[i]);
      generations.push_back(all[i]);
      reported.insert(reported.end(), all[i].log_probs.begin(), all[i].log_probs.end());
    }
    const std::vector<float> trained =
        training_log_probs(tiny_, pack(requests, generations), temperature);
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

// Equal bits of a model that says the same thing whatever the prompt would show nothing.
TEST_P(EngineEquality, TheModelIsNotDegenerate) {
  std::set<std::vector<TokenId>> distinct;
  std::set<TokenId> tokens;
  double sum = 0;
  int64_t count = 0;
  for (const Generation& generation : expected_) {
    distinct.insert(generation.tokens);
    tokens.insert(generation.tokens.begin(), generation.tokens.end());
    for (const float log_prob : generation.log_probs) sum += static_cast<double>(log_prob);
    count += static_cast<int64_t>(generation.log_probs.size());
  }
  EXPECT_GT(distinct.size(), expected_.size() * 3 / 4);
  EXPECT_GT(tokens.size(), 30u);
  EXPECT_LT(sum / static_cast<double>(count), -0.2);
}

INSTANTIATE_TEST_SUITE_P(Families, EngineEquality,
                         testing::Values("llama", "qwen2", "qwen3", "glm4"),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::rollout

// E1 and E2 where the device's attention switches algorithms: sequences that cross blocks of 128
// keys, a segment of 1024 keys or the key-length limits of recorded steps; heads of 128; steps that
// mix decodes with short and long chunks; batches for which decode uses clusters, segments or whole
// sequences.
#include <map>
#include <string>
#include <vector>

#include "model/random_model_cuda.h"
#include "rollout/engine_case.h"
#include "rollout/step/step_plan.h"

namespace slimexx::rollout {
namespace {

EngineCase long_case(const std::string& family) {
  const model::ModelSpec spec = model::random_spec(family,
                                                   {.vocab_size = 4104,
                                                    .hidden_size = 256,
                                                    .intermediate_size = 512,
                                                    .head_dim = 128,
                                                    .max_positions = 1312,
                                                    .num_heads = 8},
                                                   0.08);
  return {family, model::test_device(), spec, {16, 128}, 1300};
}

// Prompts of 900 to 1100 tokens with `num_samples` samples each, so that responses end below or
// above 1024 keys.
std::vector<Request> long_requests(int num_prompts, uint32_t num_samples, int64_t max_new_tokens) {
  std::vector<Request> requests;
  PhiloxStream random(31, 2);
  for (int p = 0; p < num_prompts; ++p) {
    std::vector<TokenId> prompt(900 + random.next_below(201));
    for (TokenId& token : prompt) token = static_cast<TokenId>(random.next_below(4104));
    for (uint32_t sample = 0; sample < num_samples; ++sample) {
      Request request = make_request(static_cast<int64_t>(requests.size()), prompt, 0);
      const auto fewer = static_cast<int64_t>(random.next_below(30));
      request.sampling.max_new_tokens = max_new_tokens - fewer;
      request.sampling.temperature = sample % 2 == 0 ? 1.0f : 0.7f;
      if (sample % 4 == 2) request.sampling.top_p = 0.9f;
      if (sample % 4 == 3) request.sampling.top_k = 20;
      request.name = {
          .seed = 77, .group = (uint64_t{1} << 32) + static_cast<uint64_t>(p), .sample = sample};
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

class LongEngine : public EngineSuite {
 protected:
  static EngineOptions options(int64_t chunk, int64_t running, int64_t total_tokens) {
    EngineOptions options;
    options.max_sequence_tokens = 1300;
    options.chunked_prefill_size = chunk;
    options.max_running_requests = running;
    options.max_total_tokens = total_tokens;
    return options;
  }
  EngineStats run(const std::vector<Request>& requests, const std::vector<Completion>& expected,
                  const EngineOptions& options, const std::string& what) const {
    Engine together = engine(options);
    const std::vector<Completion> results = generate_all(together, requests);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i], what);
    const EngineStats& stats = together.stats();
    std::printf(
        "%-40s steps %5ld, running %3ld, partial chunks %4ld, cached %6ld, preemptions %ld\n",
        what.c_str(), stats.steps, stats.max_running, stats.partial_chunks, stats.cached_tokens,
        stats.preemptions);
    return stats;
  }
};

// The token budget sets the size of the chunks next to 7 decodes: chunks of up to 2041 and 505
// tokens use whole-sequence attention, 13 is split by keys, 4 joins the decodes.
TEST_P(LongEngine, MixedStepsChangeNothing) {
  const std::vector<Request> requests = long_requests(8, 3, 200);
  const std::vector<Completion> alone = each_alone(requests);
  for (const int64_t chunk : {2048, 512, 20, 11}) {
    const EngineStats stats = run(requests, alone, options(chunk, 8, 24 * 1312),
                                  "8 of 24 at once, budget " + std::to_string(chunk));
    EXPECT_GE(stats.max_running, 7);
    EXPECT_GT(stats.partial_chunks, 0);
    EXPECT_GT(stats.cached_tokens, 0);
  }
  EngineOptions own = options(512, 8, 24 * 1312);
  own.enable_prefix_cache = false;
  own.page_tokens = 128;
  EXPECT_EQ(run(requests, alone, own, "pages of 128, own").cached_tokens, 0);
  EXPECT_GT(run(requests, alone, options(512, 24, 3 * 1312), "little room").preemptions, 0);
}

TEST_P(LongEngine, TrainingComputesTheSameBits) {
  const std::vector<Request> all = long_requests(8, 3, 200);
  Engine small = engine(options(512, 8, 24 * 1312));
  const std::vector<Completion> generated = generate_all(small, all);
  for (const float temperature : {1.0f, 0.7f}) {
    std::vector<Request> requests;
    std::vector<Completion> completions;
    std::vector<float> reported;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].sampling.temperature != temperature) continue;
      requests.push_back(all[i]);
      completions.push_back(generated[i]);
      reported.insert(reported.end(), generated[i].log_probs.begin(), generated[i].log_probs.end());
    }
    const std::vector<float> trained =
        training_log_probs(*model_, pack(requests, completions), temperature);
    ASSERT_EQ(trained.size(), reported.size());
    ASSERT_GT(trained.size(), 1000u);
    for (size_t i = 0; i < trained.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(reported[i]), std::bit_cast<uint32_t>(trained[i]))
          << "temperature " << temperature << ", response token " << i << " of all: rollout "
          << reported[i] << ", training " << trained[i];
    std::printf("temperature %.1f: %zu log-probs equal\n", static_cast<double>(temperature),
                trained.size());
  }
}

// With two key heads, 8 sequences get a cluster each for their two segments; with 100 a thread
// block takes one segment; with 272 it takes a whole sequence, because there are more than three
// per multiprocessor.
TEST_P(LongEngine, DecodeOfAnyBatchChangesNothing) {
  const std::vector<Request> requests = long_requests(34, 8, 64);
  const std::vector<Completion> alone = each_alone(requests);
  for (const int64_t running : {272, 100, 8}) {
    const int64_t graphs = tensor::allocation_counters(device()).num_graphs;
    const EngineStats stats = run(requests, alone, options(8192, running, 272 * 1200),
                                  std::to_string(running) + " of 272 at once");
    EXPECT_EQ(stats.max_running, running);
    EXPECT_GT(tensor::allocation_counters(device()).num_graphs, graphs);
  }
}

// The counters do not include the driver's memory for recorded steps. The drop in free device
// memory beyond the counters must be within the plan.
TEST_P(LongEngine, RecordedStepsTakeNoMoreThanPlanned) {
  const std::vector<Request> requests = long_requests(10, 4, 64);
  const EngineOptions forty = options(2048, 40, 40 * 1312);
  const auto bytes_beyond_counters = [&] {
    const tensor::DeviceMemory state = tensor::device_memory(device());
    return state.total_bytes - state.free_bytes - tensor::allocation_counters(device()).live_bytes;
  };
  {
    Engine first = engine(forty);  // kernels are loaded
    generate_all(first, requests);
  }
  const int64_t planned = plan_recorded_bytes(model_->spec, dist::groups_of_one(), 0);
  // Other programs on the device also change its free memory, so take the minimum over several
  // attempts.
  int64_t taken = planned + 1, recorded = 0;
  for (int attempt = 0; attempt < 5 && taken > planned; ++attempt) {
    const int64_t before = bytes_beyond_counters();
    const int64_t graphs = tensor::allocation_counters(device()).num_graphs;
    Engine used = engine(forty);
    for (int round = 0; round < 3; ++round) generate_all(used, requests);
    taken = bytes_beyond_counters() - before;
    recorded = tensor::allocation_counters(device()).num_graphs - graphs;
    std::printf(
        "%ld recorded steps of 2 layers: %ld KiB beyond the counters, %ld KiB planned for\n",
        recorded, taken >> 10, planned >> 10);
  }
  EXPECT_GT(recorded, 0);
  EXPECT_LE(taken, planned);
}

INSTANTIATE_TEST_SUITE_P(Families, LongEngine,
                         testing::Values(long_case("qwen3"), long_case("glm4")), case_name);

}  // namespace
}  // namespace slimexx::rollout

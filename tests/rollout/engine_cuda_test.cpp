// E1 and E2 of the numeric contract on the device: what a request generates, to the last bit of its
// log-probs, depends neither on how the engine ran it (batch, chunks, pages, recorded graphs,
// preemption) nor on whether generation or training computed it.
#include <algorithm>
#include <map>
#include <set>

#include "model/random_model_cuda.h"
#include "rollout/tiny_model.h"
#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

using model::RandomModel;
using model::test_device;

constexpr int64_t kMaxSequence = 116;

// What the trainer computes for the responses: one packed forward with a tape, and the head.
std::vector<float> device_log_probs(const RandomModel& own, const PackedSamples& packed,
                                    float temperature) {
  std::vector<float> log_probs(packed.rows.size());
  const auto run = [&](tensor::Stream stream, tensor::Arena& arena) {
    const auto put = [&](const std::vector<int32_t>& values) {
      const tensor::Tensor t =
          arena.allocate(tensor::DType::kI32, {static_cast<int64_t>(values.size())});
      tensor::upload(stream, t, values.data());
      return t;
    };
    model::Batch batch;
    batch.tokens = put(packed.tokens);
    batch.positions = put(packed.positions);
    batch.attention.cu_seqlens = packed.cu_seqlens;
    batch.attention.device_cu_seqlens = put(packed.cu_seqlens);
    const tensor::Tensor rows = put(packed.rows), targets = put(packed.targets),
                         out = arena.allocate(tensor::DType::kF32,
                                              {static_cast<int64_t>(log_probs.size())});
    model::Tape tape;
    const tensor::Tensor x = own.transformer.forward(stream, arena, own.weights, batch, &tape);
    model::head_forward(stream, arena, own.spec, own.weights, x, rows, targets,
                        {.temperature = temperature}, out, {}, nullptr);
    tensor::download(stream, log_probs.data(), out);
  };
  tensor::Arena plan = tensor::Arena::for_planning(own.device, "test");
  run(tensor::planning_stream(own.device, plan), plan);
  tensor::Arena arena(own.device, plan.high_water_bytes(), "test");
  run(tensor::compute_stream(own.device), arena);
  return log_probs;
}

class EngineCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    tensor::select_device(test_device());
    model_ =
        std::make_unique<RandomModel>(model::device_spec(GetParam(), 0.12), test_device(), false);
    requests_ = mixed_requests(7, 21, 61);
    static std::map<std::string, std::vector<Generation>> by_family;
    if (!by_family.contains(GetParam())) by_family[GetParam()] = each_alone(requests_);
    expected_ = by_family[GetParam()];
  }

  static EngineOptions roomy() {
    EngineOptions options;
    options.max_total_tokens = 8000;
    options.max_sequence_tokens = kMaxSequence;
    return options;
  }
  Engine engine(const EngineOptions& options) const {
    return Engine(model_->transformer, model_->weights, test_device(), options, nullptr, 0);
  }
  std::vector<Generation> each_alone(const std::vector<Request>& requests) const {
    EngineOptions options = roomy();
    options.enable_prefix_cache = false;
    Engine alone = engine(options);
    std::vector<Generation> all;
    for (const Request& request : requests) all.push_back(generate_all(alone, {request}).front());
    EXPECT_EQ(alone.stats().max_running, 1);
    return all;
  }

  // Runs all requests together and compares with each alone; returns what happened.
  EngineStats run(const EngineOptions& options, const std::string& what,
                  bool backwards = false) const {
    Engine together = engine(options);
    std::vector<Request> requests = requests_;
    if (backwards) std::ranges::reverse(requests);
    std::vector<Generation> results = generate_all(together, requests);
    if (backwards) std::ranges::reverse(results);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected_[i], what);
    return together.stats();
  }

  std::unique_ptr<RandomModel> model_;
  std::vector<Request> requests_;
  std::vector<Generation> expected_;
};

TEST_P(EngineCuda, AnyBatchChunkPageCacheAndOrder) {
  EXPECT_EQ(run(roomy(), "batched").partial_chunks, 0);
  for (const int64_t chunk : {1, 7, 64}) {
    EngineOptions options = roomy();
    options.chunked_prefill_size = chunk;
    const EngineStats stats = run(options, "chunk " + std::to_string(chunk));
    EXPECT_GT(stats.partial_chunks, 0);
    EXPECT_EQ(stats.max_batch_tokens, chunk);
  }
  for (const int64_t page : {16, 32, 128})
    for (const bool cache : {true, false}) {
      EngineOptions options = roomy();
      options.page_tokens = page;
      options.enable_prefix_cache = cache;
      const std::string what = "page " + std::to_string(page) + (cache ? ", shared" : ", own");
      EXPECT_EQ(run(options, what).cached_tokens > 0, cache && page < 128) << what;
    }
  EXPECT_GT(run(roomy(), "backwards", true).cached_tokens, 0);
  EngineOptions narrow = roomy();
  narrow.max_running_requests = 3;
  EXPECT_EQ(run(narrow, "three at once").max_running, 3);
}

TEST_P(EngineCuda, PreemptionChangesNothing) {
  int64_t shared_preemptions = 0;
  for (const int64_t total : {kMaxSequence, 2 * kMaxSequence}) {
    for (const bool cache : {true, false}) {
      for (const int64_t chunk : {9, 2048}) {
        EngineOptions options = roomy();
        options.max_total_tokens = total;
        options.chunked_prefill_size = chunk;
        options.enable_prefix_cache = cache;
        const std::string what = "cache " + std::to_string(total) +
                                 (cache ? ", shared, " : ", own, ") + std::to_string(chunk);
        const EngineStats stats = run(options, what);
        if (cache) {
          shared_preemptions += stats.preemptions;
          continue;
        }
        EXPECT_GT(stats.preemptions, 0) << what;
        EXPECT_GT(stats.recomputed_tokens, 0) << what;
      }
    }
  }
  EXPECT_GT(shared_preemptions, 0);
}

TEST_P(EngineCuda, TrainingComputesTheSameBits) {
  EngineOptions options = roomy();
  options.max_total_tokens = kMaxSequence;
  options.chunked_prefill_size = 33;
  Engine small = engine(options);
  const std::vector<Generation> all = generate_all(small, requests_);
  EXPECT_GT(small.stats().preemptions, 0);
  EXPECT_GT(small.stats().cached_tokens, 0);
  EXPECT_GT(small.stats().partial_chunks, 0);
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
        device_log_probs(*model_, pack(requests, generations), temperature);
    ASSERT_EQ(trained.size(), reported.size());
    ASSERT_GT(trained.size(), 150u);
    for (size_t i = 0; i < trained.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(reported[i]), std::bit_cast<uint32_t>(trained[i]))
          << "temperature " << temperature << ", response token " << i << " of all: rollout "
          << reported[i] << ", training " << trained[i];
    std::printf("%s, temperature %.1f: %zu log-probs equal\n", GetParam().c_str(),
                static_cast<double>(temperature), trained.size());
  }
}

// Decode steps are recorded for some batch sizes; others are padded to those.
TEST_P(EngineCuda, RecordedStepsOfPaddedBatchesChangeNothing) {
  std::vector<Request> requests;
  for (int i = 0; i < 33; ++i) {
    Request request = requests_[static_cast<size_t>(i) % requests_.size()];
    request.id = i;
    request.sampling.max_new_tokens = 12;
    request.sampling.stop_token_ids.clear();
    request.name.rollout = 9;
    requests.push_back(std::move(request));
  }
  const std::vector<Generation> alone = each_alone(requests);
  for (const int64_t most : {256, 33})
    for (const size_t count : {3, 5, 7, 33}) {
      EngineOptions options = roomy();
      options.max_running_requests = most;
      Engine together = engine(options);
      for (int round = 0; round < 2; ++round) {  // the second one launches recorded steps alone
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

TEST_P(EngineCuda, NothingIsAllocatedOnceWarm) {
  Engine warm = engine(roomy());
  generate_all(warm, requests_);
  const tensor::AllocationCounters before = tensor::allocation_counters(test_device());
  for (int round = 0; round < 3; ++round) generate_all(warm, requests_);
  const tensor::AllocationCounters after = tensor::allocation_counters(test_device());
  EXPECT_EQ(after.num_allocations, before.num_allocations);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

// Others write what they like into the cache's memory between requests: NaNs, too.
TEST_P(EngineCuda, LentMemoryLeavesNoTrace) {
  Engine lender = engine(roomy());
  for (int round = 0; round < 2; ++round) {
    const tensor::Tensor cache = lender.lend_cache();
    const std::vector<char> spoiled(static_cast<size_t>(cache.size_bytes()), '\xff');
    tensor::upload(tensor::compute_stream(test_device()), cache, spoiled.data());
    lender.on_weights_updated();
    const std::vector<Generation> results = generate_all(lender, requests_);
    for (size_t i = 0; i < results.size(); ++i)
      expect_same(results[i], expected_[i], "after a loan");
  }
}

TEST_P(EngineCuda, PagesOfOtherSizesAreRefused) {
  for (const int64_t page : {1, 8, 24}) {
    EngineOptions options = roomy();
    options.page_tokens = page;
    try {
      engine(options);
      ADD_FAILURE() << page;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_NE(error.message().find("powers of two from 16"), std::string::npos)
          << error.message();
    }
  }
}

// Equal bits of a model that says the same thing whatever the prompt would show nothing.
TEST_P(EngineCuda, TheModelIsNotDegenerate) {
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

INSTANTIATE_TEST_SUITE_P(Families, EngineCuda, testing::ValuesIn(model::device_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::rollout

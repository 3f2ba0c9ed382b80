// Multi-rank engines, as threads, on the CPU or sharing a GPU (cpu_cases.cpp, cuda_cases.cpp):
// tokens and log-probs have the bits of one rank with the same number of leaves (numerics contract,
// N5 and N6), for any batching, caching and preemption.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "rollout/engine_case.h"
#include "rollout/sharded_model.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rollout {
namespace {

constexpr int64_t kSampledTokens = 61;  // below the vocabulary size
constexpr int64_t kMaxSequence = 116;

struct RankCase {
  std::string family;
  int num_ranks = 1;
  dist::GridSizes sizes = {};
  bool replicates_dense = false;  // every rank has the whole dense MLPs
  int64_t expert_copies = 0;      // physical copies of eight experts; 0: no redundancy
};
void PrintTo(const RankCase& c, std::ostream* out) {
  *out << c.family << "_" << c.num_ranks << "_tp" << c.sizes.tp << "_ep" << c.sizes.ep
       << (c.replicates_dense ? "_whole_mlps" : "");
  if (c.expert_copies > 0) *out << "_copies" << c.expert_copies;
}

// The spec that the ranks of the case use for this model.
model::ModelSpec spec_of_ranks(const RankCase& c, model::ModelSpec spec) {
  const auto adapt = [&](model::LayerSpec& layer) {
    if (auto* dense = std::get_if<model::DenseMlpSpec>(&layer.mlp))
      dense->is_replicated = c.replicates_dense;
    auto* moe = std::get_if<model::MoeMlpSpec>(&layer.mlp);
    if (moe == nullptr) return;
    if (moe->shared) moe->shared->is_replicated = c.replicates_dense;
    moe->expert_copies = c.expert_copies;
  };
  std::ranges::for_each(spec.layers, adapt);
  for (model::MtpSpec& mtp : spec.mtp) adapt(mtp.layer);
  return spec;
}

const RankSetting& setting() {
  static const RankSetting setting = rank_setting();
  return setting;
}

model::ModelSpec spec_of(const std::string& family) {
  return setting().spec_of(family, family == "glm_moe_dsa" ? 4 : 2);
}

bool has_device() { return setting().device.is_cpu() || tensor::count_cuda_devices() > 0; }

EngineOptions roomy() {
  EngineOptions options;
  options.max_total_tokens = 8000;
  options.max_sequence_tokens = kMaxSequence;
  return options;
}

// Options for ranks that share the device's streams: no recorded steps, because a recording would
// capture other ranks' work.
EngineOptions of_threads(EngineOptions options) {
  options.records_steps = false;
  return options;
}

struct RankResult {
  std::map<int64_t, Completion> completions;
  EngineStats stats;
  int64_t cache_bytes = 0;
};

class EngineRanks : public testing::TestWithParam<RankCase> {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no GPU";
    spec_ = spec_of(GetParam().family);
    spec_.mtp.assign(1, {.layer = spec_.layers.back()});
    requests_ = mixed_requests(setting().num_prompts, 21, kSampledTokens);
    EngineOptions options = roomy();
    options.enable_prefix_cache = false;
    expected_ = run_one(options).first;
  }

  // Results of one rank with the same number of leaves.
  std::pair<std::vector<Completion>, EngineStats> run_one(const EngineOptions& options) const {
    const RandomModel one(spec_, setting().device, false, GetParam().sizes.tp);
    Engine engine(one.decoder, one.weights, setting().device, options, nullptr, kSampledTokens);
    std::vector<Completion> completions = generate_all(engine, requests_);
    return {std::move(completions), engine.stats()};
  }

  // Results of each rank. Attention group i of n gets requests i, i + n, ...
  std::vector<RankResult> run(const EngineOptions& options) const {
    const RankCase& c = GetParam();
    std::vector<RankResult> results(static_cast<size_t>(c.num_ranks));
    dist::run_thread_ranks(c.num_ranks, [&](dist::Collective& host) {
      const ShardedModel model(host, spec_, c.sizes, spec_of_ranks(c, spec_), setting().device);
      Engine engine(model.decoder, model.weights, setting().device, of_threads(options), nullptr,
                    kSampledTokens, {}, model.grid.groups());
      RankResult& mine = results[static_cast<size_t>(host.rank())];
      const auto groups = static_cast<size_t>(c.num_ranks / c.sizes.tp);
      for (auto i = static_cast<size_t>(host.rank() / c.sizes.tp); i < requests_.size();
           i += groups)
        engine.submit(requests_[i]);
      EXPECT_EQ(engine.runs_in_lock_step(), c.sizes.ep > c.sizes.tp);
      const auto any_has_work = [&] {
        double has_work[1] = {engine.has_work() ? 1.0 : 0.0};
        dist::all_reduce_max(host, has_work);
        return has_work[0] != 0;
      };
      while (any_has_work())
        for (Completion& completion : engine.step())
          mine.completions.emplace(completion.id, std::move(completion));
      mine.stats = engine.stats();
      mine.cache_bytes = engine.lend_cache().size_bytes();
    });
    return results;
  }

  void expect_all(const std::vector<RankResult>& results, const std::string& what) const {
    const int tp = GetParam().sizes.tp;
    for (size_t rank = 0; rank < results.size(); ++rank) {
      const size_t group = rank / static_cast<size_t>(tp);
      const size_t groups = results.size() / static_cast<size_t>(tp);
      size_t count = 0;
      for (size_t i = group; i < requests_.size(); i += groups, ++count) {
        const auto found = results[rank].completions.find(requests_[i].id);
        ASSERT_NE(found, results[rank].completions.end()) << what << ", rank " << rank;
        expect_same(found->second, expected_[i], what + ", rank " + std::to_string(rank));
      }
      EXPECT_EQ(results[rank].completions.size(), count) << what << ", rank " << rank;
    }
  }

  model::ModelSpec spec_;
  std::vector<Request> requests_;
  std::vector<Completion> expected_;
};

TEST_P(EngineRanks, HaveTheBitsOfOneRankWithLeaves) {
  const std::vector<RankResult> results = run(roomy());
  expect_all(results, "roomy");
  EXPECT_GT(results[0].stats.cached_tokens, 0);
  EXPECT_GT(results[0].stats.max_running, 1);
}

TEST_P(EngineRanks, PreemptionAndChunksChangeNothing) {
  for (const bool cache : {true, false}) {
    EngineOptions options = roomy();
    options.max_total_tokens = kMaxSequence;
    options.page_tokens = setting().smallest_page;
    options.chunked_prefill_size = cache ? 9 : 33;
    options.enable_prefix_cache = cache;
    const std::vector<RankResult> results = run(options);
    expect_all(results, cache ? "narrow, shared pages" : "narrow, own pages");
    EXPECT_GT(results[0].stats.preemptions, 0);
    EXPECT_GT(results[0].stats.partial_chunks, 0);
  }
}

// Ranks draft the same tokens as one rank; with data-parallel attention each group drafts for its
// own sequences.
TEST_P(EngineRanks, GuessesChangeNothing) {
  for (const auto& [num_drafts, by_mtp] : {std::pair{3, false}, {1, true}, {3, true}}) {
    const std::string what = std::to_string(num_drafts) + (by_mtp ? " by mtp" : " looked up");
    EngineOptions options = roomy();
    options.num_draft_tokens = num_drafts;
    options.drafts_by_mtp = by_mtp;
    options.gates_drafts = false;
    const std::vector<RankResult> results = run(options);
    expect_all(results, what);
    int64_t guessed = 0;
    for (const RankResult& result : results) guessed += result.stats.draft_tokens;
    EXPECT_GT(guessed, by_mtp ? 100 : 0) << what;
    if (GetParam().num_ranks > GetParam().sizes.tp) continue;
    const EngineStats one = run_one(options).second;
    for (const RankResult& result : results) {
      EXPECT_EQ(result.stats.draft_tokens, one.draft_tokens) << what;
      EXPECT_EQ(result.stats.accepted_tokens, one.accepted_tokens) << what;
    }
  }
}

// Only leaves change the order of sums; expert and attention groups do not. The test also shows
// that the equality tests can fail.
TEST_P(EngineRanks, OnlyLeavesHaveOtherBitsThanOneRank) {
  const RandomModel plain(spec_, setting().device, false);
  Engine engine(plain.decoder, plain.weights, setting().device, roomy(), nullptr, kSampledTokens);
  const std::vector<Completion> completions = generate_all(engine, requests_);
  bool differs = false;
  for (size_t i = 0; i < completions.size(); ++i)
    differs = differs || completions[i].log_probs != expected_[i].log_probs;
  EXPECT_EQ(differs, GetParam().sizes.tp > 1);
}

INSTANTIATE_TEST_SUITE_P(
    Grids, EngineRanks,
    testing::Values(
        RankCase{"qwen3", 2, {.tp = 2}}, RankCase{"qwen3", 4, {.tp = 4}},
        RankCase{"qwen2", 4, {.tp = 4}}, RankCase{"glm4", 2, {.tp = 2}},
        RankCase{"glm4", 4, {.tp = 4}}, RankCase{"glm4_moe_lite", 2, {.tp = 2, .ep = 2}},
        RankCase{"deepseek_v3", 4, {.tp = 4, .ep = 4}},
        RankCase{"glm_moe_dsa", 2, {.tp = 2, .ep = 2}}, RankCase{"qwen3_moe", 4, {.ep = 4}},
        RankCase{"glm4_moe", 2, {.tp = 2, .ep = 2}}, RankCase{"glm4_moe", 2, {.ep = 2}},
        RankCase{"glm4_moe_lite", 4, {.ep = 4}}, RankCase{"glm4_moe", 4, {.tp = 2, .ep = 4}},
        RankCase{"glm4_moe_lite", 4, {.tp = 2, .ep = 4}}, RankCase{"glm_moe_dsa", 4, {.ep = 4}},
        RankCase{"glm4_moe", 4, {.tp = 4, .ep = 4}, true}, RankCase{"glm4", 2, {.tp = 2}, true},
        RankCase{"deepseek_v3", 4, {.tp = 2, .ep = 4}, true},
        // All experts within every attention group, or within the engine.
        RankCase{"qwen3_moe", 2, {.tp = 2}}, RankCase{"glm4_moe", 4, {.tp = 4, .ep = 2}},
        RankCase{"glm4_moe_lite", 4, {.ep = 2}},
        // Numbers of experts that are not divisible by the ranks, and redundant experts.
        RankCase{"qwen3_moe", 3, {.ep = 3}, false, 8},
        RankCase{"glm4_moe", 6, {.tp = 2, .ep = 6}, false, 11},
        RankCase{"deepseek_v3", 2, {.tp = 2, .ep = 2}, true, 16},
        RankCase{"glm_moe_dsa", 3, {.ep = 3}, false, 20}),
    [](const auto& instance) { return testing::PrintToString(instance.param); });

// In a dense model, steps with many rows split them over tp ranks; steps with few rows keep all on
// every rank.
TEST(EngineRanksOfDenseModels, ManyAndFewRowsHaveTheSameBits) {
  if (!has_device()) GTEST_SKIP() << "no GPU";
  const tensor::Device device = setting().device;
  model::ModelSpec spec = spec_of("glm4");
  spec.max_positions = 400;
  std::vector<Request> requests = mixed_requests(1, 9, kSampledTokens);
  std::vector<TokenId> prompt;
  for (int64_t t = 0; t < 300; ++t)
    prompt.push_back(static_cast<TokenId>(t * t * 7 % kSampledTokens));
  for (Request& request : requests)
    request.prompt = std::make_shared<const std::vector<TokenId>>(prompt);
  for (const int tp : {2, 4}) {
    EngineOptions options = roomy();
    options.max_sequence_tokens = spec.max_positions;
    const RandomModel one(spec, device, false, tp);
    Engine alone(one.decoder, one.weights, device, options, nullptr, kSampledTokens);
    const std::vector<Completion> expected = generate_all(alone, requests);
    for (const int64_t chunk : {int64_t{2048}, int64_t{40}})
      dist::run_thread_ranks(tp, [&](dist::Collective& host) {
        const ShardedModel model(host, spec, {.tp = tp}, device);
        const int64_t few = most_repeated_rows(spec, host.size());
        EXPECT_EQ(few, tp == 2 ? 256 : 85);
        EXPECT_TRUE(40 <= few && few < std::ssize(prompt));
        EngineOptions own = options;
        own.chunked_prefill_size = chunk;
        Engine engine(model.decoder, model.weights, device, of_threads(own), nullptr,
                      kSampledTokens, {}, model.grid.groups());
        const std::vector<Completion> completions = generate_all(engine, requests);
        ASSERT_EQ(completions.size(), expected.size());
        for (size_t i = 0; i < expected.size(); ++i)
          expect_same(completions[i], expected[i],
                      "tp " + std::to_string(tp) + ", chunks of " + std::to_string(chunk));
      });
  }
}

// Without a split, routed experts would compute a row once for every rank that has it.
TEST(EngineRanksOfExperts, SplitAllRows) {
  EXPECT_EQ(most_repeated_rows(spec_of("glm4_moe"), 2), 0);
  EXPECT_EQ(most_repeated_rows(spec_of("glm4"), 1), 0);
}

// Attention groups without requests take part in the steps of the others.
TEST(EngineLockStep, RanksWithoutRequestsRunEmptySteps) {
  if (!has_device()) GTEST_SKIP() << "no GPU";
  const tensor::Device device = setting().device;
  const model::ModelSpec spec = spec_of("glm4_moe");
  const RandomModel one(spec, device, false);
  const std::vector<Request> requests = mixed_requests(1, 5, kSampledTokens);
  Engine alone(one.decoder, one.weights, device, roomy(), nullptr, kSampledTokens);
  const std::vector<Completion> expected = generate_all(alone, requests);
  dist::run_thread_ranks(4, [&](dist::Collective& host) {
    const ShardedModel model(host, spec, {.ep = 4}, device);
    Engine engine(model.decoder, model.weights, device, of_threads(roomy()), nullptr,
                  kSampledTokens, {}, model.grid.groups());
    // Each rank in turn has all the requests.
    for (int turn = 0; turn < host.size(); ++turn) {
      const bool is_mine = turn == host.rank();
      if (is_mine)
        for (const Request& request : requests) engine.submit(request);
      std::map<int64_t, Completion> completions;
      for (double goes_on[1] = {1}; goes_on[0] != 0;) {
        goes_on[0] = engine.has_work() ? 1 : 0;
        dist::all_reduce_max(host, goes_on);
        for (Completion& completion : engine.step())
          completions.emplace(completion.id, std::move(completion));
      }
      ASSERT_EQ(completions.size(), is_mine ? requests.size() : 0) << "rank " << host.rank();
      for (const auto& [id, completion] : completions)
        expect_same(completion, expected[static_cast<size_t>(id)],
                    "rank " + std::to_string(host.rank()));
    }
  });
}

// KV heads are split, and replicated if there are fewer than ranks; latent rows are replicated on
// every rank.
TEST(EngineMemoryOfRanks, CountsTheirShareOfKeysAndValues) {
  if (!has_device()) GTEST_SKIP() << "no GPU";
  const tensor::Device device = setting().device;
  const auto bytes_of = [&](const std::string& family, int tp) {
    const model::ModelSpec spec = spec_of(family);
    std::vector<int64_t> bytes(static_cast<size_t>(tp));
    dist::run_thread_ranks(tp, [&](dist::Collective& host) {
      const ShardedModel model(host, spec, {.tp = tp, .ep = family == "qwen3" ? 1 : tp}, device);
      Engine engine(model.decoder, model.weights, device, roomy(), nullptr, 0, {},
                    model.grid.groups());
      bytes[static_cast<size_t>(host.rank())] = engine.lend_cache().size_bytes();
    });
    for (const int64_t n : bytes) EXPECT_EQ(n, bytes[0]);
    return bytes[0];
  };
  EXPECT_EQ(bytes_of("qwen3", 1), 2 * bytes_of("qwen3", 2));
  EXPECT_EQ(bytes_of("qwen3", 4), bytes_of("qwen3", 2));
  EXPECT_EQ(bytes_of("glm4_moe_lite", 2), bytes_of("glm4_moe_lite", 1));
}

}  // namespace
}  // namespace slimexx::rollout

// Tests that the ranks of an engine agree on the rates by which their gates choose drafts.
#include "slimexx/rollout/decode_rates.h"

#include <gtest/gtest.h>

#include <vector>

#include "rollout/engine_case.h"
#include "rollout/sharded_model.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::rollout {
namespace {

tensor::DecodeRates rates_of(const char* name) {
  return tensor::find_device_kind(name)->decode_rates();
}

TEST(DecodeRates, RanksTakeThoseOfTheSlowestRankOfTheirEngine) {
  // Ranks 0 and 3 have the other kind.
  const std::vector<const char*> names = {"h20", "h200", "h200", "h100"};
  const auto agree = [&](const dist::GridSizes& sizes) {
    std::vector<tensor::DecodeRates> agreed(names.size());
    dist::run_thread_ranks(4, [&](dist::Collective& host) {
      const dist::ProcessGrid grid(host, sizes, {});
      const auto rank = static_cast<size_t>(host.rank());
      agreed[rank] = agree_on_rates(grid.groups(), rates_of(names[rank]));
    });
    return agreed;
  };
  const tensor::DecodeRates h20 = rates_of("h20"), h100 = rates_of("h100"), h200 = rates_of("h200");
  EXPECT_LT(h100.copy_bytes_per_s, h20.copy_bytes_per_s);
  using All = std::vector<tensor::DecodeRates>;
  EXPECT_EQ(agree({}), (All{h20, h200, h200, h100}));
  EXPECT_EQ(agree({.tp = 2}), (All{h20, h20, h100, h100}));
  EXPECT_EQ(agree({.ep = 2}), (All{h20, h20, h100, h100}));
  EXPECT_EQ(agree({.tp = 4}), All(4, h100));
  EXPECT_EQ(agree({.tp = 2, .ep = 4}), All(4, h100));
  EXPECT_EQ(agree({.tp = 4, .ep = 2}), All(4, h100));
}

constexpr int64_t kSampledTokens = 61;

EngineOptions gated(const tensor::DecodeRates& rates) {
  EngineOptions options;
  options.max_total_tokens = 8000;
  options.max_sequence_tokens = 116;
  options.num_draft_tokens = 3;
  options.drafts_by_mtp = true;
  options.decode_rates = rates;
  return options;
}

// Random MTP layers guess wrong. With the H200's waits a tiny model's wrong drafts cost nothing, so
// all are made; without waits the gate soon stops them.
TEST(DecodeRates, RanksOfDifferentKindsMakeTheSameDrafts) {
  model::ModelSpec spec = rank_setting().spec_of("glm4_moe", 2);
  spec.mtp.assign(1, {.layer = spec.layers.back()});
  const std::vector<Request> requests = mixed_requests(4, 21, kSampledTokens);
  const auto run_alone = [&](const char* name) {
    const RandomModel one(spec, {}, false, 2);
    Engine engine(one.decoder, one.weights, {}, gated(rates_of(name)), nullptr, kSampledTokens);
    const std::vector<Completion> completions = generate_all(engine, requests);
    EXPECT_EQ(completions.size(), requests.size());
    return engine.stats().draft_tokens;
  };
  const int64_t fast = run_alone("h200"), slow = run_alone("cpu");
  EXPECT_LT(slow, fast);
  EXPECT_GT(slow, 0);

  std::vector<int64_t> drafts(2);
  dist::run_thread_ranks(2, [&](dist::Collective& host) {
    const ShardedModel model(host, spec, {.tp = 2, .ep = 2});
    const dist::Groups& groups = model.grid.groups();
    const tensor::DecodeRates rates =
        agree_on_rates(groups, rates_of(host.rank() == 0 ? "h200" : "cpu"));
    Engine engine(model.decoder, model.weights, {}, gated(rates), nullptr, kSampledTokens, {},
                  groups);
    EXPECT_EQ(generate_all(engine, requests).size(), requests.size());
    drafts[static_cast<size_t>(host.rank())] = engine.stats().draft_tokens;
  });
  EXPECT_EQ(drafts[0], drafts[1]);
  EXPECT_LT(drafts[0], fast);
}

}  // namespace
}  // namespace slimexx::rollout

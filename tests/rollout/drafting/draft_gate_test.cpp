#include "rollout/drafting/draft_gate.h"

#include <gtest/gtest.h>

#include <variant>

#include "rollout/engine_case.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/families.h"
#include "test_paths.h"

namespace slimexx::rollout {
namespace {

tensor::DecodeRates rates_of(const char* name) {
  return tensor::find_device_kind(name)->decode_rates();
}
model::ModelSpec read_flash() {
  const std::string folder = test_data_path("../configs/models/GLM-4.7-Flash");
  return model::read_model_spec(io::HfFolder::open_without_weights(folder).config(), folder);
}

constexpr DecodeCost kDense{.dense = 100};
// 4 of 64 experts per row. Reading all experts costs as much as everything else.
constexpr DecodeCost kExperts{.dense = 100, .experts = 100, .expert_rate = 4.0 / 64};

// A gate that has seen `accepted` of three drafts per sequence accepted.
DraftGate taught(const DecodeCost& cost, int64_t accepted, int times = 1000) {
  DraftGate gate(3, cost);
  for (int i = 0; i < times; ++i) gate.record(3, accepted);
  return gate;
}

TEST(DraftGate, RowsOfADenseModelCostNothing) {
  EXPECT_EQ(DraftGate(3, kDense).choose(1, 0, 3), 3);
  EXPECT_EQ(taught(kDense, 3).choose(1, 0, 3), 3);
  EXPECT_EQ(taught(kDense, 3).choose(1, 0, 2), 2);
  EXPECT_EQ(taught(kDense, 3).choose(1, 0, 0), 0);
}

TEST(DraftGate, ExpertsOfWrongGuessesAreReadForNothing) {
  EXPECT_DOUBLE_EQ(kExperts.of_rows(1, 0), 100 + 6.25);
  EXPECT_DOUBLE_EQ(kExperts.of_rows(2, 0), 100 + 100 * (1 - 0.9375 * 0.9375));
  EXPECT_EQ(taught(kExperts, 3).choose(1, 0, 3), 3);
  EXPECT_EQ(taught(kExperts, 1).choose(1, 0, 3), 1);
  EXPECT_EQ(taught(kExperts, 0).choose(1, 0, 3), 0);
}

// (1 + p) / (1.02 cost(2)) > 1 / cost(1) holds for p > 1.02 cost(2) / cost(1) - 1 = 0.076.
TEST(DraftGate, OneDraftPaysFromItsPriceOn) {
  const auto chosen = [](int right_of_1000) {
    DraftGate gate(1, kExperts);
    for (int i = 0; i < 2000; ++i) gate.record(1, i % 1000 < right_of_1000);
    return gate.choose(1, 0, 1);
  };
  EXPECT_NEAR(1.02 * kExperts.of_rows(2, 0) / kExperts.of_rows(1, 0) - 1, 0.0763, 1e-4);
  EXPECT_EQ(chosen(60), 0);
  EXPECT_EQ(chosen(100), 1);
}

TEST(DraftGate, ALaterDraftCountsWithAllBeforeIt) {
  DraftGate gate(2, kExperts);
  for (int i = 0; i < 1000; ++i) gate.record(2, i % 2 == 0 ? 1 : 0);  // never accepts both
  EXPECT_EQ(gate.choose(1, 0, 2), 1);
}

TEST(DraftGate, LooksAgainNowAndThen) {
  DraftGate gate = taught(kExperts, 0);
  int asked = 0, announced = 0;
  for (int i = 0; i < 4 * DraftGate::kProbeCalls; ++i) {
    announced += gate.goes_on();
    asked += gate.choose(1, 0, 3) == 3;
  }
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(announced, 4);
  // Once drafts are accepted again, the gate soon allows them.
  for (int i = 0; i < 6000; ++i) gate.record(3, 3);
  EXPECT_EQ(gate.choose(1, 0, 3), 3);
  EXPECT_TRUE(gate.goes_on());
}

// Each draft reads the keys of its sequence again.
TEST(DraftGate, LongContextsMakeGuessesDear) {
  DecodeCost cost = kDense;
  cost.cached_token = 0.01;
  DraftGate gate(1, cost);
  for (int i = 0; i < 1000; ++i) gate.record(1, i % 2);  // every second draft is accepted
  EXPECT_EQ(gate.choose(1, 1000, 1), 1);    // cost 100 + 2 * 10 against 100 + 10, for 1.5 tokens
  EXPECT_EQ(gate.choose(32, 10000, 1), 0);  // cost 100 + 6400 against 100 + 3200
}

// Part names must match describe.h: a part with another name would count as dense.
TEST(DraftGate, CostsAreOfWhatADecodeStepReads) {
  const model::ModelSpec spec = engine_cases().back().spec;
  const auto* moe = std::get_if<model::MoeMlpSpec>(&spec.layers.back().mlp);
  ASSERT_NE(moe, nullptr);
  int64_t experts = 0, rest = 0;
  for (const model::ParameterInfo& info : model::list_parameters(spec)) {
    const bool is_expert = info.reduce_group == model::ReduceGroup::kExpert;
    const bool is_read = info.name != "embedding.weight" || spec.tied_embeddings;
    (is_expert ? experts : rest) += is_read ? info.num_elements() : 0;
  }
  const DecodeCost cost =
      decode_cost(spec, dist::groups_of_one(), {.element_bytes = 2, .cached_token = 10});
  EXPECT_EQ(cost.experts, 2.0 * static_cast<double>(experts));
  EXPECT_EQ(cost.dense, 2.0 * static_cast<double>(rest));
  EXPECT_GT(experts, 0);
  EXPECT_EQ(cost.expert_rate,
            static_cast<double>(moe->router.top_k) / static_cast<double>(moe->router.num_experts));
  EXPECT_EQ(cost.rows_of_row, 1);
  EXPECT_EQ(cost.waits + cost.guess + cost.guess_experts + cost.guess_head, 0);
}

// Measured step times of GLM-4.7-Flash on an H200 with drafts, relative to steps without
// (docs/performance.md).
TEST(DraftGate, CostsAreNearThoseMeasured) {
  const model::ModelSpec spec = read_flash();
  DecodeSetting setting{.rates = rates_of("h200"), .drafts_by_mtp = true};
  const DecodeCost cost = decode_cost(spec, dist::groups_of_one(), setting);
  setting.drafts_by_mtp = false;
  const DecodeCost none = decode_cost(spec, dist::groups_of_one(), setting);
  struct Measured {
    double sequences, drafts, times;
  };
  for (const Measured& m : {Measured{1, 1, 1.30}, {1, 3, 1.70}, {16, 1, 1.25}, {16, 3, 1.50}})
    EXPECT_NEAR(cost.of_step(m.sequences, m.drafts, 0) / none.of_rows(m.sequences, 0), m.times,
                0.08 * m.times)
        << m.sequences << " sequences, " << m.drafts << " guesses";
  const double rate = setting.rates.copy_bytes_per_s;
  EXPECT_NEAR(none.of_rows(1, 0) / rate, 3.57e-3, 0.05 * 3.57e-3);
  EXPECT_NEAR(none.of_rows(16, 0) / rate, 11.7e-3, 0.05 * 11.7e-3);
}

// A GPU with slower memory could read less while a layer waits. So waits hide less of the cost of
// drafts, and drafts must be accepted more often. On the CPU layers never wait.
TEST(DraftGate, DraftsCostMoreOnAGpuWithSlowerMemory) {
  const model::ModelSpec spec = read_flash();
  const auto cost_on = [&](const char* name) {
    return decode_cost(spec, dist::groups_of_one(), {.rates = rates_of(name)});
  };
  const DecodeCost h200 = cost_on("h200"), h100 = cost_on("h100"), cpu = cost_on("cpu");
  EXPECT_DOUBLE_EQ(h100.waits / h200.waits, 3.35 / 4.8);
  EXPECT_EQ(h100.dense, h200.dense);
  EXPECT_EQ(cpu.waits, 0);
  const auto price = [](const DecodeCost& cost) {
    return 1.02 * cost.of_step(1, 1, 0) / cost.of_step(1, 0, 0) - 1;
  };
  EXPECT_LT(price(h200), price(h100));
  EXPECT_LT(price(h100), price(cpu));
  const double share = (price(h200) + price(h100)) / 2;
  const auto chosen = [&](const DecodeCost& cost) {
    DraftGate gate(1, cost);
    for (int i = 0; i < 3000; ++i) gate.record(1, i % 1000 < 1000 * share);
    return gate.choose(1, 0, 1);
  };
  EXPECT_EQ(chosen(h200), 1);
  EXPECT_EQ(chosen(h100), 0);
}

// Experts on four ranks get the rows of all four.
TEST(DraftGate, RanksShareExperts) {
  DecodeCost cost = kExperts;
  cost.rows_of_row = 4;
  EXPECT_DOUBLE_EQ(cost.of_rows(1, 0), kExperts.of_rows(4, 0));
}

}  // namespace
}  // namespace slimexx::rollout

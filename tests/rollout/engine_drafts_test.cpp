// Tests speculative decoding: drafts change when a request finishes, but not the tokens and
// log-probs that it generates.
#include <fmt/format.h>

#include <cstdio>

#include "rollout/engine_case.h"

namespace slimexx::rollout {
namespace {

void print(const std::string& what, const EngineStats& stats) {
  std::printf("%-26s steps %4ld, drafts %5ld, accepted %5ld, preemptions %3ld, cached %4ld\n",
              what.c_str(), stats.steps, stats.draft_tokens, stats.accepted_tokens,
              stats.preemptions, stats.cached_tokens);
}

class EngineDrafts : public EngineSuite {
 protected:
  void SetUp() override {
    EngineSuite::SetUp();
    if (!IsSkipped()) requests_ = mixed_requests(7, 21, 61);
  }

  // Runs requests and identical twins that start some steps later.
  EngineStats run_twins(EngineOptions options, int64_t num_drafts, const std::string& what) {
    options.num_draft_tokens = num_drafts;
    options.gates_drafts = false;
    Engine guessing = engine(options);
    std::map<int64_t, Completion> done;
    const auto step = [&] {
      for (Completion& completion : guessing.step()) done[completion.id] = std::move(completion);
    };
    for (const Request& request : requests_) guessing.submit(request);
    for (int i = 0; i < 12; ++i) step();
    for (Request twin : requests_) {
      twin.id += 1000;
      guessing.submit(twin);
    }
    while (guessing.has_work()) step();
    if (expected_.empty()) expected_ = each_alone(requests_);
    for (size_t i = 0; i < requests_.size(); ++i)
      for (const int64_t id : {requests_[i].id, requests_[i].id + 1000}) {
        done[id].id = requests_[i].id;
        expect_same(done[id], expected_[i], what);
      }
    const EngineStats& stats = guessing.stats();
    print(what, stats);
    add(stats);
    EXPECT_LE(stats.draft_tokens, num_drafts * stats.verifications) << what;
    int64_t tokens = 0;
    for (const auto& [id, completion] : done) tokens += std::ssize(completion.tokens);
    EXPECT_EQ(stats.generated_tokens, tokens) << what;
    return stats;
  }

  // Cache sizes from one sequence to several, so that sequences wait, are preempted or have drafts
  // in different runs.
  template <class Run>
  void with_few_pages(EngineOptions options, Run&& run) {
    options.page_tokens = std::max<int64_t>(smallest_page(), 4);
    for (const int64_t sequences : {1, 2, 4}) {
      options.max_total_tokens = sequences * max_sequence();
      run(options, fmt::format(", pages of {}", sequences));
    }
  }
  void add(const EngineStats& stats) {
    all_.draft_tokens += stats.draft_tokens;
    all_.accepted_tokens += stats.accepted_tokens;
    all_.preemptions += stats.preemptions;
  }
  // Checks over all runs of a test that drafts were accepted and rejected, and sequences preempted:
  // the device's page sizes decide in which runs.
  void expect_every_kind() const {
    EXPECT_GT(all_.accepted_tokens, 0);
    EXPECT_GT(all_.draft_tokens, all_.accepted_tokens);
    EXPECT_GT(all_.preemptions, 0);
  }

  std::vector<Request> requests_;
  std::vector<Completion> expected_;
  EngineStats all_;
};

// A twin finds its next tokens in the first request's response. Other drafts are wrong.
TEST_P(EngineDrafts, LookedUpChangeNothing) {
  const EngineStats none = run_twins(roomy(), 0, "no drafts");
  EXPECT_EQ(none.draft_tokens + none.accepted_tokens + none.verifications, 0);
  for (const int64_t num_drafts : {1, 3, 8}) {
    const std::string what = std::to_string(num_drafts) + " drafts";
    const EngineStats stats = run_twins(roomy(), num_drafts, what);
    EXPECT_GT(stats.accepted_tokens, 100) << what;
    EXPECT_LT(stats.steps, none.steps) << what;
    EngineOptions options = roomy();
    options.page_tokens = std::max<int64_t>(smallest_page(), 4);
    options.enable_prefix_cache = false;
    EXPECT_GT(run_twins(options, num_drafts, what + ", own pages").accepted_tokens, 100);
    options.enable_prefix_cache = true;
    options.chunked_prefill_size = 40;
    options.max_running_requests = 40;
    EXPECT_GT(run_twins(options, num_drafts, what + ", few rows").accepted_tokens, 10);
    with_few_pages(roomy(), [&](const EngineOptions& few, const std::string& how) {
      run_twins(few, num_drafts, what + how);
    });
  }
  expect_every_kind();
}

struct MtpModel {
  model::ModelSpec spec;
  std::unique_ptr<RandomModel> model;
};
MtpModel make_mtp_model(model::ModelSpec spec, tensor::Device device) {
  spec.mtp.assign(1, {.layer = spec.layers.back()});
  auto model = std::make_unique<RandomModel>(spec, device, false);
  return {std::move(spec), std::move(model)};
}

struct Generated {
  std::vector<Completion> results;
  EngineStats stats;
};
Generated run_mtp(const RandomModel& model, tensor::Device device, EngineOptions options,
                  int64_t num_drafts, const std::vector<Request>& requests, const std::string& what,
                  bool gates = false) {
  options.gates_drafts = gates;
  options.num_draft_tokens = num_drafts;
  options.drafts_by_mtp = num_drafts > 0;
  Engine guessing(model.decoder, model.weights, device, options, nullptr, 0);
  Generated run{generate_all(guessing, requests), guessing.stats()};
  print(what, run.stats);
  return run;
}

// The MTP layer has random weights: most of its drafts are wrong, but not all.
TEST_P(EngineDrafts, OfAnMtpLayerChangeNothing) {
  const MtpModel made = make_mtp_model(GetParam().spec, device());
  const RandomModel& model = *made.model;
  const Generated none = run_mtp(model, device(), roomy(), 0, requests_, "no drafts");
  for (const int64_t num_drafts : {1, 3}) {
    const auto expect_equal = [&](const EngineOptions& options, const std::string& how) {
      const std::string what = fmt::format("mtp {}{}", num_drafts, how);
      const auto [results, stats] = run_mtp(model, device(), options, num_drafts, requests_, what);
      for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], none.results[i], what);
      add(stats);
      return stats;
    };
    const EngineStats first = expect_equal(roomy(), "");
    EXPECT_LE(first.steps, none.stats.steps);
    EXPECT_GT(first.draft_tokens, (num_drafts - 1) * first.verifications);
    EngineOptions options = roomy();
    options.enable_prefix_cache = false;
    const EngineStats large = expect_equal(options, ", own pages");
    options.page_tokens = std::max<int64_t>(smallest_page(), 4);
    const EngineStats small = expect_equal(options, ", small pages");
    EXPECT_EQ(small.draft_tokens, large.draft_tokens);
    EXPECT_EQ(small.accepted_tokens, large.accepted_tokens);
    options.chunked_prefill_size = 40;
    options.max_running_requests = 40;
    expect_equal(options, ", few rows");
    with_few_pages(roomy(), expect_equal);
    // Most drafts are wrong, so the gate allows few.
    const auto [results, gated] =
        run_mtp(model, device(), roomy(), num_drafts, requests_, "gated", true);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], none.results[i], "gated");
    EXPECT_LE(gated.draft_tokens, first.draft_tokens);
  }
  expect_every_kind();
}

// Zeroes all residual outputs and lets the MTP layer read only the embedding. Its draft then equals
// the model's next token, also if its input is its own draft.
void teach_mtp(const MtpModel& taught) {
  const std::string mtp = fmt::format("layers.{}.", taught.spec.num_layers());
  model::ParameterStore& store = taught.model->store;
  for (const model::ParameterInfo& info : store.infos()) {
    std::vector<float> values = taught.model->weight_values(info);
    if (info.init == model::InitKind::kResidual ||
        info.name.ends_with("post_attention_norm.weight") ||
        info.name.ends_with("post_mlp_norm.weight"))
      std::ranges::fill(values, 0.0f);
    if (info.name == mtp + "input.weight") {
      std::ranges::fill(values, 0.0f);
      for (int64_t i = 0; i < info.shape[0]; ++i)
        values[static_cast<size_t>(i * info.shape[1] + i)] = 1;
    }
    if (info.name == mtp + "embedding_norm.weight" || info.name == mtp + "final_norm.weight" ||
        info.name == "final_norm.weight")
      std::ranges::fill(values, 1.0f);
    store.write_weights(info, 0, values.data(), info.num_elements());
  }
}

TEST_P(EngineDrafts, AnMtpLayerThatKnowsTheModelGuessesRight) {
  const MtpModel taught = make_mtp_model(GetParam().spec, device());
  teach_mtp(taught);
  const Generated none = run_mtp(*taught.model, device(), roomy(), 0, requests_, "no drafts");
  for (const int64_t num_drafts : {1, 3}) {
    const std::string what = fmt::format("taught mtp {}", num_drafts);
    const auto [results, stats] =
        run_mtp(*taught.model, device(), roomy(), num_drafts, requests_, what);
    for (size_t i = 0; i < results.size(); ++i) expect_same(results[i], none.results[i], what);
    EXPECT_GT(stats.draft_tokens, 100) << what;
    EXPECT_GE(stats.accepted_tokens, stats.draft_tokens * 95 / 100) << what;
    EXPECT_LT(stats.steps * (num_drafts + 1), none.stats.steps * 2) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineDrafts, testing::ValuesIn(engine_cases()), case_name);

}  // namespace
}  // namespace slimexx::rollout

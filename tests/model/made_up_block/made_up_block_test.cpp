// A block added by this test, with a state per sequence (running_sum.h). Planning, computing and
// describing it needs no code outside its own files. Parts that do not support such a block yet
// refuse it by name.
#include <gtest/gtest.h>

#include "model/model_passes.h"
#include "slimexx/base/error.h"
#include "slimexx/model/describe.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::model {
namespace {

// Four layers of qwen3_moe; the attention of the second and the last is replaced by running sums.
ModelSpec with_running_sums() {
  ModelSpec spec = random_spec("qwen3_moe",
                               {.vocab_size = 64,
                                .hidden_size = 32,
                                .intermediate_size = 48,
                                .head_dim = 64,
                                .max_positions = 128,
                                .num_layers = 4},
                               0.2);
  for (const size_t i : {1, 3})
    spec.layers[i].attention = RunningSumSpec{.hidden_size = spec.hidden_size, .width = 24};
  return spec;
}

template <class F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Pass makes a plan and then runs in an arena of the planned size.
TEST(MadeUpBlock, RunsInPlannedMemory) {
  const ModelSpec spec = with_running_sums();
  const Sequences s = make_sequences({37, 1, 70}, spec.vocab_size, 3);
  RandomModel model(spec, {}, true);
  const Outcome kept = Pass(model, s, kKeepAll, true).run();
  for (const KeepPlan& keep : all_keep_plans()) {
    const Outcome again = Pass(model, s, keep, true).run();
    EXPECT_EQ(first_difference(again.log_probs, kept.log_probs), "");
    for (size_t i = 0; i < kept.gradients.size(); ++i)
      EXPECT_EQ(first_difference(again.gradients[i], kept.gradients[i]), "")
          << model.store.infos()[i].name << " at level " << static_cast<int>(keep.level);
  }
}

TEST(MadeUpBlock, SumsStartAtZeroInEverySequence) {
  const ModelSpec spec = with_running_sums();
  const Sequences s = make_sequences({37, 2, 70}, spec.vocab_size, 3);
  RandomModel model(spec, {}, false);
  const Outcome packed = Pass(model, s, kKeepAll, false).run();
  std::vector<float> alone;
  for (size_t b = 0; b < 3; ++b) {
    const Sequences one = only(s, b);
    const Outcome outcome = Pass(model, one, kKeepAll, false).run();
    alone.insert(alone.end(), outcome.log_probs.begin(), outcome.log_probs.end());
  }
  EXPECT_EQ(first_difference(packed.log_probs, alone), "");
}

// The objective that backward differentiates: the sum of log-probs and entropies, weighted with the
// random numbers of Pass.
double objective(const Outcome& outcome) {
  const auto weighted = [](const std::vector<float>& values, uint64_t seed) {
    PhiloxStream random(seed, 6);
    double sum = 0;
    for (const float value : values) sum += value * static_cast<float>(random.next_normal());
    return sum;
  };
  return weighted(outcome.log_probs, 1) + weighted(outcome.entropies, 2);
}

TEST(MadeUpBlock, GradientsAreThoseOfDifferences) {
  const ModelSpec spec = with_running_sums();
  const Sequences s = make_sequences({11, 5}, spec.vocab_size, 7);
  RandomModel model(spec, {}, true);
  const Outcome outcome = Pass(model, s, kKeepAll, true).run();
  int checked = 0;
  for (const ParameterInfo& info : model.store.infos()) {
    if (!info.name.starts_with("layers.1.attention.")) continue;
    const std::vector<float> values = model.weight_values(info);
    for (size_t i = 5; i < values.size(); i += values.size() / 4) {
      constexpr float kStep = 0.01f;
      const auto at = [&](float step) {
        std::vector<float> moved = values;
        moved[i] += step;
        model.store.write_weights(info, 0, moved.data(), info.num_elements());
        return objective(Pass(model, s, kKeepAll, false).run());
      };
      const double slope = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double gradient = outcome.gradients[static_cast<size_t>(info.id)][i];
      EXPECT_NEAR(gradient, slope, 0.02 * std::abs(slope) + 2e-3) << info.name << " [" << i << "]";
      ++checked;
    }
    model.store.write_weights(info, 0, values.data(), info.num_elements());
  }
  EXPECT_GE(checked, 8);
}

TEST(MadeUpBlock, IsDescribed) {
  const ModelSpec spec = with_running_sums();
  EXPECT_EQ(name_layer(spec.layer(1)).attention, "running sum");
  const std::vector<std::string> lines = describe_layers(spec);
  EXPECT_TRUE(std::ranges::any_of(lines, [](const std::string& line) {
    return line.find("running sum of 24, decay 0.9") != std::string::npos;
  }));
  EXPECT_GT(forward_flops(spec, 100), 0);
}

TEST(MadeUpBlock, EngineRefusesItsState) {
  const ModelSpec spec = with_running_sums();
  RandomModel model(spec, {}, false);
  const rollout::EngineOptions options{.max_running_requests = 2, .max_total_tokens = 256};
  const std::string wanted = "layer 1 (running sum) keeps a state per sequence";
  EXPECT_NE(message_of([&] {
              rollout::plan_engine_memory(model.decoder, model.weights, {}, options, 64);
            }).find(wanted),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              rollout::Engine(model.decoder, model.weights, {}, options, {}, 64);
            }).find(wanted),
            std::string::npos);
}

TEST(MadeUpBlock, RefusesGridsAndDevices) {
  const ModelSpec spec = with_running_sums();
  EXPECT_NE(message_of([&] { narrow(spec, {.tp = 2}); }).find("running sums are not split"),
            std::string::npos);
  EXPECT_NE(message_of([&] { narrow(spec, {.cp = 2}); }).find("running sums do not go on"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              Decoder(spec, tensor::Device{.type = tensor::DeviceType::kCuda}, 128);
            }).find("no kernel"),
            std::string::npos);
}

}  // namespace
}  // namespace slimexx::model

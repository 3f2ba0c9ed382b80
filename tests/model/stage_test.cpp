// Tests that a pipeline stage has the same bits as its layers in the whole model, forward and
// backward, for any layers, any kept activations, and layers of different shapes.
#include <gtest/gtest.h>

#include "model/model_passes.h"
#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

constexpr int64_t kLayers = 7;

ModelSpec seven_layers(const std::string& family) {
  ModelSpec spec = random_spec(family,
                               {.vocab_size = 64,
                                .hidden_size = 48,
                                .intermediate_size = 80,
                                .head_dim = 12,
                                .max_positions = 96,
                                .num_layers = kLayers},
                               0.08);
  // Layer 4 has another shape, so that code that applies one layer's sizes to all fails.
  if (auto* attention = std::get_if<GqaSpec>(&spec.layers[4].attention)) {
    attention->num_kv_heads = 4;
    attention->qkv_bias = !attention->qkv_bias;
  }
  spec.layers[4].mlp = DenseMlpSpec{.hidden_size = spec.hidden_size, .intermediate_size = 128};
  return spec;
}

// Activations and gradients at layer borders in one pass over the whole model.
struct Borders {
  std::vector<std::vector<float>> x;   // x[l]: the input of layer l; x[kLayers]: the result
  std::vector<std::vector<float>> dx;  // gradients of x
};

std::vector<float> values_of(const Tensor& t) { return {t.f32(), t.f32() + t.num_elements()}; }

Batch packed(const Sequences& s) {
  Batch batch;
  const auto view = [](const std::vector<int32_t>& values) {
    return Tensor(const_cast<int32_t*>(values.data()), DType::kI32, {},
                  {static_cast<int64_t>(values.size())});
  };
  batch.tokens = view(s.tokens);
  batch.positions = view(s.positions);
  batch.attention.cu_seqlens = s.cu;
  return batch;
}

std::vector<float> some_values(int64_t n, uint64_t seed) {
  PhiloxStream random(seed, 6);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = static_cast<float>(random.next_normal());
  return values;
}

Borders run_whole(RandomModel& model, const Sequences& s, KeepPlan keep) {
  Arena arena({}, int64_t{64} << 20, "test");
  const ops::Context ctx = ops::compute_context(arena);
  ops::fill_zero(ctx, model.store.gradient_memory());
  const Batch batch = packed(s);
  Tape tape{.keep = keep};
  const Tensor out = model.decoder.forward(ctx, model.weights, batch, &tape);
  Borders borders;
  for (const LayerTape& layer : tape.layers) borders.x.push_back(values_of(layer.x));
  borders.x.push_back(values_of(out));
  borders.dx.resize(kLayers + 1);
  borders.dx[kLayers] = some_values(out.num_elements(), 9);
  const Tensor dx = arena.allocate(DType::kF32, {out.dim(0), out.dim(1)});
  tensor::upload(ctx.stream, dx, borders.dx[kLayers].data());
  const ModelParameters gradients = bind_gradients(model.store, model.spec);
  model.decoder.backward(ctx, model.weights, gradients, batch, tape, dx, true,
                         {.layer_done = [&](int64_t layer) {
                           borders.dx[static_cast<size_t>(layer)] = values_of(dx);
                         }});
  return borders;
}

// Runs a stage with the weights of `whole` and the border values as input, and compares its outputs
// and gradients.
void expect_same(RandomModel& whole, const Borders& borders, const Sequences& s,
                 const StageRange& stage, KeepPlan keep) {
  const auto first = static_cast<size_t>(stage.first_layer);
  const auto end = static_cast<size_t>(stage.end_layer);
  ParameterStore store(list_parameters(whole.spec, stage), {}, true);
  for (const ParameterInfo& info : store.infos()) {
    const ParameterInfo& from =
        whole.store.infos()[static_cast<size_t>(whole.store.find(info.name))];
    const std::vector<float> values = whole.weight_values(from);
    store.write_weights(info, 0, values.data(), info.num_elements());
  }
  const Decoder decoder(whole.spec, {}, whole.spec.max_positions, stage);
  const ModelParameters weights = bind_weights(store, whole.spec, stage);
  const ModelParameters gradients = bind_gradients(store, whole.spec, stage);

  Arena arena({}, int64_t{64} << 20, "test");
  const ops::Context ctx = ops::compute_context(arena);
  const Batch batch = packed(s);
  const Tensor input = arena.allocate(DType::kF32, {batch.tokens.dim(0), whole.spec.hidden_size});
  tensor::upload(ctx.stream, input, borders.x[first].data());
  Tape tape{.keep = keep};
  const Tensor out =
      decoder.forward(ctx, weights, batch, &tape, stage.has_embedding ? Tensor{} : input);
  EXPECT_EQ(first_difference(values_of(out), borders.x[end]), "");
  const Tensor without_tape =
      decoder.forward(ctx, weights, batch, nullptr, stage.has_embedding ? Tensor{} : input);
  EXPECT_EQ(first_difference(values_of(without_tape), borders.x[end]), "");

  const Tensor dx = arena.allocate(DType::kF32, {out.dim(0), out.dim(1)});
  tensor::upload(ctx.stream, dx, borders.dx[end].data());
  decoder.backward(ctx, weights, gradients, batch, tape, dx, true);
  EXPECT_EQ(first_difference(values_of(dx), borders.dx[first]), "");
  for (const ParameterInfo& info : store.infos()) {
    if (!info.trainable) continue;
    // The head runs separately, so its gradients are not computed, nor that of a table that only
    // the head uses.
    if (info.name == "final_norm.weight" || info.name == "lm_head.weight") continue;
    if (info.name == "embedding.weight" && !stage.has_embedding) continue;
    EXPECT_EQ(first_difference(values_of(store.gradient(info.id)),
                               values_of(whole.store.gradient(whole.store.find(info.name)))),
              "")
        << info.name;
  }
}

class StageTest : public testing::TestWithParam<std::string> {};

TEST_P(StageTest, ComputesWhatItsLayersComputeInTheWhole) {
  const ModelSpec spec = seven_layers(GetParam());
  const Sequences s = make_sequences({37, 2, 70}, spec.vocab_size, 3);
  RandomModel whole(spec, {}, true);
  for (const LayerKeep level : {LayerKeep::kAll, LayerKeep::kInputs}) {
    const KeepPlan keep{.level = level};
    const Borders borders = run_whole(whole, s, keep);
    expect_same(whole, borders, s,
                {.first_layer = 3, .end_layer = 6, .has_embedding = false, .has_head = false},
                keep);
    expect_same(whole, borders, s, {.end_layer = 3, .has_head = false}, keep);
    expect_same(whole, borders, s, {.first_layer = 6, .end_layer = kLayers, .has_embedding = false},
                keep);
  }
}

// With uneven layers the kept activations fit, because the plan counts each layer's own bytes.
TEST_P(StageTest, KeepPlanCountsEveryLayerOfTheStage) {
  const ModelSpec spec = seven_layers(GetParam());
  const StageRange stage{.first_layer = 3, .end_layer = 6, .has_embedding = false};
  constexpr int64_t kTokens = 100;
  const auto total = [&](const KeepPlan& plan) {
    int64_t bytes = 0;
    for (int64_t layer = 0; layer < stage.num_layers(); ++layer)
      bytes += layer_tape_bytes(spec, stage.first_layer + layer, {}, kTokens, plan.of(layer));
    return bytes;
  };
  const int64_t least = total({.level = LayerKeep::kInputs}), most = total(kKeepAll);
  for (int64_t bytes = 0; bytes <= most - least; bytes += 4096)
    EXPECT_LE(total(choose_keep(spec, stage, {}, kTokens, bytes)) - least, bytes) << bytes;
  EXPECT_EQ(choose_keep(spec, stage, {}, kTokens, most - least), kKeepAll);
}

INSTANTIATE_TEST_SUITE_P(Families, StageTest, testing::ValuesIn(all_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::model

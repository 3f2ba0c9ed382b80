// Tests which keys a layer sees: those that its own indexer selects, or those of the last earlier
// layer with an indexer.
#include <gtest/gtest.h>

#include "model/model_passes.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

constexpr int64_t kSparseLayers = 7, kTopK = 20;

ModelSpec sparse_spec(int64_t top_k) {
  ModelSpec spec = random_spec("glm_moe_dsa",
                               {.vocab_size = 64,
                                .hidden_size = 48,
                                .intermediate_size = 80,
                                .head_dim = 12,
                                .max_positions = 96,
                                .num_layers = kSparseLayers},
                               0.2);
  add_indexers(spec, top_k);
  return spec;
}

// Results for one sequence of 90 tokens: output rows, and the selected ids per layer.
struct Outputs {
  std::vector<float> out;
  std::vector<std::vector<int32_t>> selected;
  std::vector<const void*> memory;  // addresses of the ids
};

Outputs run_sparse(int64_t top_k) {
  const ModelSpec spec = sparse_spec(top_k);
  RandomModel model(spec, {}, false);
  const Sequences s = make_sequences({90}, spec.vocab_size, 3);
  Arena arena({}, int64_t{64} << 20, "test");
  const ops::Context ctx = ops::compute_context(arena);
  const auto view = [](const std::vector<int32_t>& values) {
    return Tensor(const_cast<int32_t*>(values.data()), DType::kI32, {}, {std::ssize(values)});
  };
  Batch batch;
  batch.tokens = view(s.tokens);
  batch.positions = view(s.positions);
  batch.attention.cu_seqlens = s.cu;
  Tape tape;
  const Tensor out = model.decoder.forward(ctx, model.weights, batch, &tape);
  Outputs r;
  r.out = {out.f32(), out.f32() + out.num_elements()};
  for (const LayerTape& layer : tape.layers) {
    const Tensor& ids = layer.selected;
    r.selected.emplace_back(ids.i32(), ids.i32() + ids.num_elements());
    r.memory.push_back(ids.raw());
  }
  return r;
}

TEST(SparseIndex, LayersShareTheSelectionOfTheLastIndexerBeforeThem) {
  const Outputs r = run_sparse(kTopK);
  const size_t owner[kSparseLayers] = {0, 0, 0, 3, 3, 3, 6};
  for (size_t layer = 0; layer < kSparseLayers; ++layer) {
    EXPECT_EQ(r.memory[layer], r.memory[owner[layer]]) << layer;
    for (size_t other = 0; other < layer; ++other)
      if (owner[other] != owner[layer]) {
        EXPECT_NE(r.selected[layer], r.selected[other]) << layer << " and " << other;
      }
  }
}

// Selection has no effect before the first query that has more than top_k keys.
TEST(SparseIndex, QueriesWithFewKeysHaveTheBitsOfDenseAttention) {
  const Outputs sparse = run_sparse(kTopK), dense = run_sparse(90);
  const size_t width = sparse.out.size() / 90, few = kTopK * width;
  const auto rows = [&](const Outputs& r, size_t begin, size_t end) {
    return std::vector<float>(r.out.begin() + static_cast<int64_t>(begin),
                              r.out.begin() + static_cast<int64_t>(end));
  };
  EXPECT_EQ(first_difference(rows(sparse, 0, few), rows(dense, 0, few)), "");
  for (size_t row = kTopK + 5; row < 90; ++row)
    EXPECT_NE(first_difference(rows(sparse, row * width, (row + 1) * width),
                               rows(dense, row * width, (row + 1) * width)),
              "")
        << row;
}

// Layers with random weights do not select just the first or the last keys, so the other tests
// compare real selections.
TEST(SparseIndex, SelectionsAreSpreadOverTheSequence) {
  const Outputs r = run_sparse(kTopK);
  for (const size_t layer : {0, 3, 6}) {
    const std::vector<int32_t>& ids = r.selected[layer];
    std::vector<int> early(90);
    for (size_t i = ids.size() - kTopK; i < ids.size(); ++i) early[static_cast<size_t>(ids[i])] = 1;
    EXPECT_LT(std::count(early.begin(), early.begin() + kTopK, 1), kTopK) << layer;
    EXPECT_LT(std::count(early.end() - kTopK, early.end(), 1), kTopK) << layer;
  }
}

TEST(SparseIndex, AStageBeginsAtAnIndexer) {
  const ModelSpec spec = sparse_spec(kTopK);
  const auto stage = [&](int64_t first) {
    Decoder(spec, {}, 64,
            {.first_layer = first, .end_layer = kSparseLayers, .has_embedding = false});
  };
  stage(3);
  stage(6);
  try {
    stage(4);
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInput);
    EXPECT_NE(error.message().find("layer 4 of the stage of layers 4 to 6 shares"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace slimexx::model

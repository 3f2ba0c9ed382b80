#include "slimexx/model/encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "cpu_context.h"
#include "model/random_model.h"
#include "slimexx/model/families.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/weight_hash.h"
#include "slimexx/model/weight_plan.h"

namespace slimexx::model {
namespace {

constexpr ModelSizes kSizes{.vocab_size = 40,
                            .hidden_size = 32,
                            .intermediate_size = 32,
                            .head_dim = 8,
                            .max_positions = 64};

// A made-up encoding, which halves the plain values that it may round: a byte is the number of its
// element in its block plus the block's number, and the scale is the sum of the block. So a wrong
// place or a cut block shows.
void encode_sums(const ops::Context&, const ops::QuantisedBlocks& b) {
  const int64_t rows = b.plain.dim(0), columns = b.plain.dim(1);
  const int64_t unit_rows = rows / b.scales.dim(0), width = columns / b.scales.dim(1);
  for (int64_t block = 0; block < b.units.dim(0); ++block) {
    for (int64_t column = 0; column < b.scales.dim(1); ++column) {
      float sum = 0;
      int count = 0;
      for (int64_t u = 0; u < b.units.dim(1); ++u) {
        const int32_t unit = b.units.i32()[block * b.units.dim(1) + u];
        if (unit < 0) continue;
        for (int64_t row = unit * unit_rows; row < (unit + 1) * unit_rows; ++row)
          for (int64_t i = column * width; i < (column + 1) * width; ++i) {
            sum += b.plain.f32()[row * columns + i];
            if (b.rounded.defined()) b.rounded.f32()[row * columns + i] /= 2;
            b.values.data<uint8_t>()[row * columns + i] = static_cast<uint8_t>(count++ % 120);
          }
      }
      for (int64_t u = 0; u < b.units.dim(1); ++u) {
        const int32_t unit = b.units.i32()[block * b.units.dim(1) + u];
        if (unit >= 0) b.scales.f32()[unit * b.scales.dim(1) + column] = sum;
      }
    }
  }
}

const Encoding kMadeUp{.block_rows = 8, .block_columns = 8, .unit_rows = 4, .encode = encode_sums};

ModelSpec spec_of(const std::string& family, const dist::GridSizes& largest) {
  ModelSpec spec = random_spec(family, kSizes, 0.3);
  for (LayerSpec& layer : spec.layers)
    if (auto* mla = std::get_if<MlaSpec>(&layer.attention)) {
      mla->kv_rank = 20;
      mla->value_dim = 8;
      mla->indexer.reset();
      mla->top_k = 0;
    }
  choose_encoded(spec, kMadeUp, largest);
  return spec;
}

using Stores = std::vector<std::unique_ptr<ParameterStore>>;

Stores make_stores(const Layout& layout, const ModelSpec& spec, bool filled) {
  Stores stores;
  for (const auto& infos : layout.ranks) {
    stores.push_back(std::make_unique<ParameterStore>(*infos, tensor::Device{}, false));
    if (!filled) continue;
    init_random_weights(*stores.back(), spec, 7);
    encode_weights(cpu_context(), *stores.back());
  }
  return stores;
}

void move_all(const Layout& from, const Layout& to, const Stores& sources, const Stores& targets) {
  std::vector<WeightPlan> plans;
  for (int rank = 0; rank < static_cast<int>(sources.size()); ++rank)
    plans.push_back(make_weight_plans(list_moved(from), list_moved(to), {{rank}}, 300)[0]);
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    WeightTraffic traffic;
    move_local_weights(cpu_context(), plans[rank], *sources[rank], *targets[rank], traffic);
    for (size_t peer = 0; peer < plans.size(); ++peer) {
      const auto& sends = plans[rank].sends[peer];
      const int64_t bytes = count_bytes(sends, {});
      std::vector<char> buffer(static_cast<size_t>(bytes));
      const tensor::Tensor wire(buffer.data(), tensor::DType::kU8, {}, {bytes});
      pack_weights(cpu_context(), sends, *sources[rank], wire);
      unpack_weights(cpu_context(), plans[peer].receives[rank], *targets[peer], wire);
    }
  }
}

WeightHashes hashes_of(const Layout& layout, const Stores& stores) {
  std::vector<std::vector<uint64_t>> by_rank;
  for (const auto& store : stores) by_rank.push_back(hash_parts(*store));
  return sum_hashes(layout, by_rank, "the stores");
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::binary_search(names, name);
}

TEST(Encoding, HoldsTheWeightsOfProducts) {
  const ModelSpec spec = spec_of("glm4_moe", {});
  for (const char* name :
       {"layers.0.attention.qkv.weight", "layers.0.attention.o.weight",
        "layers.0.mlp.gate_up.weight", "layers.1.mlp.experts.gate_up.weight",
        "layers.1.mlp.experts.down.weight", "layers.1.mlp.shared_experts.gate_up.weight"})
    EXPECT_TRUE(contains(spec.encoded, name)) << name;
  for (const std::string& name : spec.encoded) {
    EXPECT_EQ(name.find("router"), std::string::npos) << name;
    EXPECT_EQ(name.find("norm"), std::string::npos) << name;
    EXPECT_EQ(name.find("embedding"), std::string::npos) << name;
    EXPECT_EQ(name.find("head"), std::string::npos) << name;
  }
}

// Blocks have 8 rows. One rank cuts none. On four ranks the dense MLP of 32 columns has 8 per rank,
// a whole block, and the shared expert of 16 columns has 4, half a block.
TEST(Encoding, CutBlocksStayPlain) {
  const ModelSpec whole = spec_of("qwen3_moe", {}), cut = spec_of("glm4_moe", {.tp = 4});
  EXPECT_TRUE(contains(whole.encoded, "layers.0.attention.qkv.weight"));
  EXPECT_TRUE(contains(cut.encoded, "layers.0.mlp.gate_up.weight"));
  EXPECT_FALSE(contains(cut.encoded, "layers.1.mlp.shared_experts.gate_up.weight"));
  EXPECT_FALSE(contains(cut.encoded, "layers.1.mlp.shared_experts.down.weight"));
}

TEST(Encoding, EngineGetsTheEncodedFormOnEveryGrid) {
  for (const char* family : {"qwen3", "glm4", "glm4_moe", "glm4_moe_lite", "deepseek_v3"}) {
    const ModelSpec spec = spec_of(family, {.tp = 2});
    const auto layout_of = [&](const dist::GridSizes& sizes) {
      return make_layout({list_parameters(spec)}, dist::GridShape(4, sizes));
    };
    const bool has_experts = std::string(family) == "glm4_moe";
    std::vector<Layout> grids{layout_of({}), layout_of({.tp = 2})};
    if (has_experts) grids.push_back(layout_of({.tp = 2, .ep = 2}));
    const WeightHashes expected = hashes_of(grids[0], make_stores(grids[0], spec, true));
    EXPECT_EQ(expected.count("model.layers.0.self_attn.o_proj.weight_scale_inv"), 1u) << family;
    for (const Layout& from : grids) {
      const Stores sources = make_stores(from, spec, true);
      EXPECT_EQ(hashes_of(from, sources), expected) << family;
      for (const Layout& grid : grids) {
        const Layout to = without_plain(grid);
        const Stores targets = make_stores(to, spec, false);
        move_all(from, to, sources, targets);
        EXPECT_EQ(hashes_of(to, targets), expected) << family;
        const Stores alike = make_stores(grid, spec, true);
        for (size_t rank = 0; rank < targets.size(); ++rank) {
          for (const ParameterInfo& info : targets[rank]->derived()) {
            const tensor::Tensor own = targets[rank]->weight(info.id);
            const tensor::Tensor same = alike[rank]->weight(info.id);
            EXPECT_TRUE(std::equal(own.data<char>(), own.data<char>() + own.size_bytes(),
                                   same.data<char>()))
                << family << " " << info.name;
          }
        }
      }
    }
  }
}

TEST(Encoding, EnginesHoldNoPlainForm) {
  const ModelSpec spec = spec_of("glm4_moe", {});
  const Layout layout = make_layout({list_parameters(spec)}, dist::GridShape(1, {}));
  const ParameterStore trained(*layout.ranks[0], tensor::Device{}, true);
  const ParameterStore served(*without_plain(layout).ranks[0], tensor::Device{}, false);
  for (const ParameterInfo& info : served.infos())
    EXPECT_EQ(served.weight(info.id).defined(), info.encoding == nullptr) << info.name;
  const ParameterId o = served.find("layers.0.attention.o.weight");
  EXPECT_EQ(served.linear(o).values.size_bytes(), 32 * 32);
  EXPECT_EQ(served.linear(o).scales.num_elements(), 32 / 4 * 32 / 8);
  EXPECT_EQ(trained.weight(o).num_elements(), 32 * 32);
  EXPECT_EQ(trained.num_elements(),
            ParameterStore(list_parameters(spec_of("glm4_moe", {})), tensor::Device{}, false)
                .num_elements());
  EXPECT_LT(ParameterStore::weight_bytes(*without_plain(layout).ranks[0], tensor::Device{}),
            ParameterStore::weight_bytes(list_parameters(random_spec("glm4_moe", kSizes, 0.3)),
                                         tensor::Device{}));
}

// A store that training and engines share: training reads the plain weights as they were, engines
// the encoded form.
TEST(Encoding, OnlyEnginesReadTheirEncoding) {
  ModelSpec trained = random_spec("glm4_moe", kSizes, 0.3);
  ParameterStore plain(list_parameters(trained), tensor::Device{}, false);
  init_random_weights(plain, trained, 7);
  Encoding encoding = kMadeUp;
  encoding.is_for_engines = true;
  choose_encoded(trained, encoding, {});
  ParameterStore store(list_parameters(trained), tensor::Device{}, false);
  init_random_weights(store, trained, 7);
  encode_weights(cpu_context(), store);
  ModelSpec served = trained;
  encoding.is_for_engines = false;
  served.encoding = std::make_shared<const Encoding>(encoding);
  for (const ParameterInfo& info : store.infos()) {
    const tensor::Tensor own = store.weight(info.id), same = plain.weight(plain.find(info.name));
    EXPECT_TRUE(std::equal(own.f32(), own.f32() + own.num_elements(), same.f32())) << info.name;
  }
  const auto output = [&](const ModelSpec& spec) {
    return std::get<GqaParameters<tensor::Tensor>>(bind_weights(store, spec).layers[1].attention).o;
  };
  const ops::Linear held = store.linear(store.find("layers.1.attention.o.weight"));
  EXPECT_EQ(output(trained).weight.raw(), held.weight.raw());
  EXPECT_FALSE(output(trained).is_fp8());
  EXPECT_FALSE(output(served).weight.defined()) << "it differs from the encoded form";
  EXPECT_EQ(output(served).values.raw(), held.values.raw());
  EXPECT_EQ(output(served).scales.raw(), held.scales.raw());
}

}  // namespace
}  // namespace slimexx::model

// Models whose sizes the device kernels do not support are refused before any allocation, so these
// tests run without a device too.
#include <gtest/gtest.h>

#include <functional>
#include <span>

#include "model/random_model_cuda.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

struct RefusedSize {
  const char* key;
  std::function<void(ModelSpec&)> change;
  const char* limit;  // as the message names it
};

void expect_refused(const std::string& family, std::span<const RefusedSize> sizes) {
  for (const RefusedSize& size : sizes) {
    ModelSpec spec = device_spec(family, 0.08);
    size.change(spec);
    try {
      const Decoder refused(spec, test_device(), 64);
      ADD_FAILURE() << size.key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      EXPECT_EQ(error.where(), size.key);
      EXPECT_NE(error.message().find(size.limit), std::string::npos) << error.message();
    }
    const Decoder on_the_cpu(spec, {}, 64);
  }
}

TEST(DeviceSizes, WhatKernelsDoNotServeIsRefusedByName) {
  const auto heads_of = [](int64_t head_dim) {
    return [head_dim](ModelSpec& spec) {
      for (LayerSpec& layer : spec.layers) std::get<GqaSpec>(layer.attention).head_dim = head_dim;
      spec.rope.rotary_dim = head_dim;
    };
  };
  const RefusedSize sizes[] = {
      {"head_dim", heads_of(8), "64 and 128"},
      {"head_dim", heads_of(80), "64 and 128"},
      {"head_dim", heads_of(256), "64 and 128"},
      {"vocab_size", [](ModelSpec& spec) { spec.vocab_size = 262145; }, "262144"},
      {"hidden_size", [](ModelSpec& spec) { spec.hidden_size = 16392; }, "16384"}};
  expect_refused("llama", sizes);
}

TEST(DeviceSizes, ExpertsThatKernelsDoNotServeAreRefusedByName) {
  const auto with = [](const std::function<void(MoeMlpSpec&)>& change) {
    return [change](ModelSpec& spec) { change(std::get<MoeMlpSpec>(spec.layers.back().mlp)); };
  };
  const RefusedSize sizes[] = {
      {"num_experts", with([](MoeMlpSpec& s) { s.router.num_experts = 385; }), "384"},
      {"num_experts_per_tok",
       with([](MoeMlpSpec& s) { s.router.num_experts = 64, s.router.top_k = 33; }), "32"},
      {"n_group", with([](MoeMlpSpec& s) { s.router.num_experts = 66, s.router.num_groups = 33; }),
       "32"},
      {"moe_intermediate_size", with([](MoeMlpSpec& s) { s.intermediate_size = 100; }),
       "multiples of 8"}};
  expect_refused("qwen3_moe", sizes);
}

TEST(DeviceSizes, OfMtpLayersThoseThatAreTrainedCount) {
  ModelSpec spec = device_spec("glm4_moe", 0.08);
  spec.mtp = {{.layer = spec.layers.back()}};
  std::get<MoeMlpSpec>(spec.mtp[0].layer.mlp).router.num_experts = 385;
  for (const bool is_trained : {false, true}) {
    spec.mtp[0].is_trained = is_trained;
    std::string refused;
    try {
      const Decoder decoder(spec, test_device(), 64);
    } catch (const Error& error) {  // without a device, models of any size fail
      refused = error.where();
    }
    EXPECT_EQ(refused == "num_experts", is_trained) << refused;
  }
}

TEST(DeviceSizes, SparseAttentionIsServedAndItsIndexersAreChecked) {
  const auto change = [](const std::function<void(IndexerSpec&)>& change_indexer) {
    return [change_indexer](ModelSpec& spec) {
      change_indexer(*std::get<MlaSpec>(spec.layers.front().attention).indexer);
    };
  };
  const RefusedSize sizes[] = {
      {"index_n_heads", change([](IndexerSpec& s) { s.num_heads = 65; }), "64"},
      {"index_head_dim", change([](IndexerSpec& s) { s.head_dim = 136; }), "128"}};
  expect_refused("glm_moe_dsa", sizes);
  for (const LayerSpec& layer : device_spec("glm_moe_dsa", 0.08).layers)
    EXPECT_NO_THROW(check_device_sizes(std::get<MlaSpec>(layer.attention), test_device()));
}

TEST(DeviceSizes, IndexersThatKernelsDoNotServeAreRefusedByName) {
  const ModelSpec spec = device_spec("glm_moe_dsa", 0.08);
  const auto& indexer = std::get<MlaSpec>(spec.layers[0].attention).indexer;
  ASSERT_TRUE(indexer.has_value());
  const auto refused = [&](int64_t heads, int64_t dim, tensor::Device device) {
    IndexerSpec changed = *indexer;
    changed.num_heads = heads, changed.head_dim = dim;
    try {
      check_device_sizes(changed, device);
    } catch (const Error& error) {
      return error.where();
    }
    return std::string();
  };
  EXPECT_EQ(refused(64, 128, test_device()), "");
  EXPECT_EQ(refused(65, 128, test_device()), "index_n_heads");
  EXPECT_EQ(refused(64, 136, test_device()), "index_head_dim");
  EXPECT_EQ(refused(64, 12, test_device()), "index_head_dim");
  EXPECT_EQ(refused(65, 12, {}), "");
}

}  // namespace
}  // namespace slimexx::model

// The architecture of a model as plain data read from config.json: global values and a LayerSpec
// per layer, whose blocks (blocks/*.h) may differ from layer to layer. A family is a function from
// config.json to a ModelSpec (families.h).
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "slimexx/model/blocks/dense_mlp.h"
#include "slimexx/model/blocks/embedding.h"
#include "slimexx/model/blocks/gqa_attention.h"
#include "slimexx/model/blocks/head.h"
#include "slimexx/model/blocks/mla_attention.h"
#include "slimexx/model/blocks/moe_mlp.h"
#ifdef SLX_TEST_BLOCK_HEADER
#include SLX_TEST_BLOCK_HEADER
#endif
#include "slimexx/ops/rotary.h"
#include "slimexx/tensor/dtype.h"

namespace slimexx::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeSpec {
  double theta = 10000;
  int64_t rotary_dim = 0;  // the first rotary_dim elements of a head are rotated, the rest are not
  ops::RotaryStyle style = ops::RotaryStyle::kHalfSplit;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                                 // all scalings
  double low_freq_factor = 1, high_freq_factor = 4;  // kLlama3
  double beta_fast = 32, beta_slow = 1;              // kYarn
  double table_scale = 1;                            // kYarn: multiplies cosines and sines
  double mscale_all_dim = 0;  // kYarn: mscale of the score scale in latent attention; 0: none
  int64_t original_max_positions = 8192;
};

// A new kind of block is one more alternative here. SLX_TEST_BLOCK is defined only in tests, which
// add a block that no family has (tests/model/made_up_block).
#ifdef SLX_TEST_BLOCK
using AttentionSpec = std::variant<GqaSpec, MlaSpec, SLX_TEST_BLOCK>;
#else
using AttentionSpec = std::variant<GqaSpec, MlaSpec>;
#endif
using MlpSpec = std::variant<DenseMlpSpec, MoeMlpSpec>;

struct LayerSpec {
  AttentionSpec attention;
  MlpSpec mlp;
  bool sandwich_norms = false;  // RMSNorm on the outputs of attention and MLP too (GLM-4-0414)
  bool operator==(const LayerSpec&) const = default;
};

// Properties of a layer's blocks (block_traits.h).
inline const ops::RouterRule* router(const LayerSpec& layer) {
  return std::visit([](const auto& mlp) { return router(mlp); }, layer.mlp);
}
inline bool has_router_bias(const LayerSpec& layer) {
  return std::visit([](const auto& mlp) { return has_router_bias(mlp); }, layer.mlp);
}
RateClass rate_class(const LayerSpec& layer);

// A layer of multi-token prediction, after the model's last layer.
struct MtpSpec {
  LayerSpec layer;
  // Whether the checkpoint repeats the embedding and the head for this layer (GLM-4.5,
  // DeepSeek-V3).
  bool has_own_embedding = false, has_own_head = false;
  // Whether this run trains the layer; trained MTP layers come first. The copies above are not
  // trained: the layer reads the model's own embedding and head, also in engines that draft with
  // it.
  bool is_trained = false;
};

struct ModelSpec {
  std::string family;        // "qwen3"; a row of families.cpp
  std::string architecture;  // "Qwen3ForCausalLM"
  int64_t vocab_size = 0, hidden_size = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  bool tied_embeddings = false;
  double initializer_range = 0.02;
  RopeSpec rope;
  tensor::DType checkpoint_dtype = tensor::DType::kBF16;  // what an export writes
  std::vector<LayerSpec> layers;
  std::vector<MtpSpec> mtp;         // their layer numbers on disk start at num_layers()
  int64_t num_missing_mtp = 0;      // further MTP layers of config.json, absent from the weights
  int64_t leaves = 1;               // of the vocabulary on this rank (HeadSpec)
  std::vector<std::string> frozen;  // ascending names of parameters: see freeze.h
  // The encoding of the parameters named in `encoded`, ascending (choose_encoded); null: none.
  std::shared_ptr<const Encoding> encoding = {};
  std::vector<std::string> encoded;
  bool fp8_cache = false;  // set by set_fp8_cache
  // Export types of tensors that no step changes, if the source folder holds them in a type other
  // than checkpoint_dtype.
  std::map<std::string, tensor::DType> kept_dtypes;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t num_trained_mtp() const { return std::ranges::count(mtp, true, &MtpSpec::is_trained); }
  const LayerSpec& layer(int64_t index) const { return layers[static_cast<size_t>(index)]; }
  HeadSpec head() const { return {hidden_size, vocab_size, rms_norm_eps, leaves}; }
};

// The model with every block narrowed to the shard of one rank of the grid. Global values stay.
ModelSpec narrow(const ModelSpec& spec, const dist::GridSizes& sizes);

// Makes every layer round its keys and values to FP8, MTP layers included.
void set_fp8_cache(ModelSpec& spec);

// A pipeline stage: consecutive layers, with or without the embedding before them and the head
// after them.
struct StageRange {
  int64_t first_layer = 0, end_layer = 0;
  bool has_embedding = true, has_head = true;
  int64_t num_layers() const { return end_layer - first_layer; }
};
inline StageRange whole_model(const ModelSpec& spec) { return {.end_layer = spec.num_layers()}; }

// Forward floating-point operations of one sequence of n tokens, causal attention halved:
// 2 x weights touched x tokens, plus scores and values (slime's convention with the output
// projection counted as num_heads * head_dim x hidden).
double forward_flops(const ModelSpec& spec, int64_t num_tokens);
// forward_flops of the trained MTP layers, each with its product with the head.
double mtp_forward_flops(const ModelSpec& spec, int64_t num_tokens);
// Training costs three times the forward, minus these operations: the weight-gradient products that
// are skipped for the stage's weights frozen by name. Proportional to num_tokens.
double frozen_weight_flops(const ModelSpec& spec, const StageRange& stage, int64_t num_tokens);

// The router of the first layer with experts; null if there is none.
const ops::RouterRule* find_router(const ModelSpec& spec);
// k/E of that router; 0 if there are no experts.
double expert_rate(const ModelSpec& spec);
// Expected share of experts that at least one of `tokens` is routed to, if each token chooses the
// share `rate` evenly: 1 - (1 - rate)^tokens.
double share_of_experts(double rate, double tokens);

}  // namespace slimexx::model

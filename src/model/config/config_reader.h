// Typed, checked reading of config.json for the families. Every fault names the file and the key.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {

// What a family takes where config.json is silent; the values are those of the family's
// configuration class in transformers 5.
struct FamilyDefaults {
  std::optional<int64_t> num_kv_heads{};  // nullopt: as many as heads
  std::optional<int64_t> head_dim{};      // nullopt: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  std::optional<double> partial_rotary_factor{};  // nullopt: whole heads turn, no factor but 1
  const char* layer_type = "full_attention";      // the only one that layer_types may hold
  std::optional<int64_t> max_window_layers{};     // nullopt: a sliding window is for all layers
  int64_t max_positions = 32768;
  int64_t q_rank = 0;  // of latent attention
};

// The same of the experts of GLM and DeepSeek.
struct ExpertDefaults {
  int64_t num_dense_layers = 1;
  double scaling_factor = 1;
  int64_t num_groups = 1, kept_groups = 1;
};

class ConfigReader {
 public:
  ConfigReader(const Json& config, std::string where) : config_(config), where_(std::move(where)) {}
  const std::string& where() const { return where_; }

  int64_t size(const std::string& key, int64_t max = int64_t{1} << 31) const;  // required, 1..max
  std::optional<int64_t> optional_size(const std::string& key) const;  // absent or null: nullopt
  bool has(const std::string& key) const;                              // and it is not null
  int64_t count(const std::string& key, int64_t fallback, int64_t max) const;  // 0..max
  double positive_number(const std::string& key) const;                        // required
  double positive_number(const std::string& key, double fallback) const;
  double number_or_zero(const std::string& key) const;     // absent, null and 0 are one
  bool flag(const std::string& key, bool fallback) const;  // null: false, as in Python
  std::string text(const std::string& key, const std::string& fallback) const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  // What is said plainly enough, and is not computed.
  [[noreturn]] void refuse(const std::string& what) const;
  // Where transformers fails on null, which is no way of leaving the key out.
  void refuse_null(const std::string& key) const;
  // A flag that has to be true.
  void require(const std::string& key, const std::string& why) const;

  // Indices of layers; absent or null: none.
  std::vector<int64_t> list_layers(const std::string& key, int64_t num_layers) const;
  // `rule` with the experts and the choices of a token (num_experts_per_tok); its groups must be
  // groups of these.
  ops::RouterRule read_router(const std::string& num_experts_key, ops::RouterRule rule) const;
  // The experts of GLM and DeepSeek (noaux_tc): sigmoid routing with a correction bias, and a
  // shared expert. Layers are as mlp_layer_types says, else dense before first_k_dense_replace.
  // MTP layers are as the last, with experts.
  void read_sigmoid_experts(ModelSpec& spec, const ExpertDefaults& defaults) const;

  // The indexers of sparse attention, for layers of latent attention and MTP layers: which layers
  // have one is what indexer_types says, else index_topk_pattern, else index_topk_freq and
  // index_skip_topk_offset. An MTP layer has its own, whatever the last layer has.
  void read_indexers(ModelSpec& spec) const;

  // The same with latent attention in place of grouped queries.
  ModelSpec read_latent(const std::string& family, const FamilyDefaults& defaults) const;
  // What all dense decoders share: sizes, norms, embeddings, rope_theta and scaling from
  // rope_parameters (transformers 5), rope_theta + rope_scaling (4), dtype; layers that are all
  // alike, of grouped-query attention and a dense MLP without biases.
  ModelSpec read_common(const std::string& family, const FamilyDefaults& defaults) const;

 private:
  void check_text(const std::string& key, const std::string& wanted) const;
  int64_t count_groups(const char* key, int64_t fallback) const;
  std::string group_text(const char* key, int64_t value) const;
  std::vector<bool> read_sparse_layers(int64_t num_layers, int64_t num_dense_layers) const;
  const Json* rope_object() const;
  double partial_rotary_factor(double fallback) const;
  int64_t original_max_positions(const ConfigReader& nested, const FamilyDefaults& defaults) const;
  std::vector<bool> read_full_layers(int64_t num_layers) const;
  std::vector<bool> list_full_layers(const std::string& key, int64_t num_layers) const;
  void check_attention(const FamilyDefaults& defaults) const;
  void check_window(const FamilyDefaults& defaults) const;
  tensor::DType read_dtype() const;
  ModelSpec read_globals(const std::string& family, const FamilyDefaults& defaults) const;
  GqaSpec read_gqa(const ModelSpec& spec, const FamilyDefaults& defaults) const;
  MlaSpec read_mla(const ModelSpec& spec, const FamilyDefaults& defaults) const;
  DenseMlpSpec read_dense_mlp(const ModelSpec& spec) const;
  RopeSpec read_rope(int64_t head_dim, const FamilyDefaults& defaults) const;
  static void read_llama3_scaling(RopeSpec& rope, const ConfigReader& nested);
  static void read_yarn_scaling(RopeSpec& rope, const ConfigReader& nested);
  const Json& config_;
  std::string where_;
};

// A value of a file in an error: no more of it than a line takes.
std::string shorten(const std::string& value);

// Families' functions, gathered by families.cpp.
ModelSpec read_llama_spec(const Json& config, const std::string& where);
ModelSpec read_qwen2_spec(const Json& config, const std::string& where);
ModelSpec read_qwen3_spec(const Json& config, const std::string& where);
ModelSpec read_qwen3_moe_spec(const Json& config, const std::string& where);
ModelSpec read_glm4_moe_spec(const Json& config, const std::string& where);
ModelSpec read_glm4_moe_lite_spec(const Json& config, const std::string& where);
ModelSpec read_glm_moe_dsa_spec(const Json& config, const std::string& where);
ModelSpec read_deepseek_v3_spec(const Json& config, const std::string& where);
ModelSpec read_glm4_spec(const Json& config, const std::string& where);

}  // namespace slimexx::model

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

// A family's defaults for keys that config.json leaves out, as in the family's configuration class
// in transformers 5.
struct FamilyDefaults {
  std::optional<int64_t> num_kv_heads{};  // nullopt: as many as query heads
  std::optional<int64_t> head_dim{};      // nullopt: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  std::optional<double> partial_rotary_factor{};  // nullopt: must be 1
  const char* layer_type = "full_attention";      // the only value allowed in layer_types
  std::optional<int64_t> max_window_layers{};     // nullopt: a window covers all layers
  int64_t max_positions = 32768;
  int64_t q_rank = 0;  // for latent attention
};

// A family's defaults for the experts of GLM and DeepSeek.
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
  bool has(const std::string& key) const;                              // present and not null
  int64_t count(const std::string& key, int64_t fallback, int64_t max) const;  // 0..max
  double positive_number(const std::string& key) const;                        // required
  double positive_number(const std::string& key, double fallback) const;
  double number_or_zero(const std::string& key) const;     // absent or null: 0
  bool flag(const std::string& key, bool fallback) const;  // null: false, as in Python
  std::string text(const std::string& key, const std::string& fallback) const;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = "") const;
  // Refuses a setting that is valid but not supported.
  [[noreturn]] void refuse(const std::string& what) const;
  // Refuses null for a key if transformers fails on it: for such a key null does not mean absent.
  void refuse_null(const std::string& key) const;
  // Refuses the file unless the flag is true.
  void require(const std::string& key, const std::string& why) const;

  // Layer indices; absent or null: an empty list.
  std::vector<int64_t> list_layers(const std::string& key, int64_t num_layers) const;
  // Completes `rule` with the number of experts and num_experts_per_tok, and checks that its groups
  // divide the experts.
  ops::RouterRule read_router(const std::string& num_experts_key, ops::RouterRule rule) const;
  // The experts of GLM and DeepSeek (noaux_tc): sigmoid routing with a correction bias, and a
  // shared expert. mlp_layer_types says which layers are dense; without this key, layers before
  // first_k_dense_replace are. MTP layers have experts, like the last layer.
  void read_sigmoid_experts(ModelSpec& spec, const ExpertDefaults& defaults) const;

  // The indexers of sparse attention, for latent-attention layers and MTP layers. The layers that
  // have one are given by indexer_types, otherwise by index_topk_pattern, otherwise by
  // index_topk_freq and index_skip_topk_offset. An MTP layer always has its own.
  void read_indexers(ModelSpec& spec) const;

  // Like read_common, with latent attention instead of grouped-query attention.
  ModelSpec read_latent(const std::string& family, const FamilyDefaults& defaults) const;
  // Reads the keys that all dense decoders share: sizes, norms, embeddings, dtype, and RoPE from
  // rope_parameters (transformers 5) or rope_theta and rope_scaling (4). All layers get
  // grouped-query attention and a dense MLP without biases.
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

// Shortens a value from a file, so that an error message stays on one line.
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

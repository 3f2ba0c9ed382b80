// What a model is, as plain data read from config.json. Forward, backward, layouts and plans are
// driven by it; a family is a function from config.json to a ModelSpec (families.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/ops/rotary.h"
#include "slimexx/tensor/dtype.h"

namespace slimexx::model {

enum class AttentionKind : uint8_t { kGqa };
enum class MlpKind : uint8_t { kDense };
enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeSpec {
  double theta = 10000;
  int64_t rotary_dim = 0;  // the first rotary_dim of head_dim turn, the rest passes
  ops::RotaryStyle style = ops::RotaryStyle::kHalfSplit;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4;  // kLlama3; factor also of kLinear
  int64_t original_max_positions = 8192;
};

struct LayerSpec {
  AttentionKind attention = AttentionKind::kGqa;
  MlpKind mlp = MlpKind::kDense;
};

struct ModelSpec {
  std::string family;        // "qwen3"; a row of families.cpp
  std::string architecture;  // "Qwen3ForCausalLM"
  int64_t vocab_size = 0, hidden_size = 0, num_layers = 0, intermediate_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  bool tied_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;         // RMSNorm per head on queries and keys before the rotation
  bool sandwich_norms = false;  // RMSNorm on the outputs of attention and MLP too (GLM-4-0414)
  bool fused_gate_up = false;   // on disk gate and up are one tensor
  double initializer_range = 0.02;
  RopeSpec rope;
  tensor::DType checkpoint_dtype = tensor::DType::kBF16;  // what an export writes
  std::vector<LayerSpec> layers;

  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  int64_t qkv_size() const { return q_size() + 2 * kv_size(); }
};

// Forward floating-point operations of one sequence of n tokens, causal attention halved:
// 2 x weights touched x tokens, plus scores and values (slime's convention with the output
// projection counted as num_heads * head_dim x hidden).
double forward_flops(const ModelSpec& spec, int64_t num_tokens);

}  // namespace slimexx::model

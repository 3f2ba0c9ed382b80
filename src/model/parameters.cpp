#include "slimexx/model/parameters.h"

#include <fmt/format.h>

#include "config_reader.h"
#include "slimexx/base/check.h"
#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

constexpr int64_t kAlignmentElements = 16;  // 64 bytes of f32: every parameter starts on a vector

int64_t aligned_elements(const ParameterInfo& info) {
  return (info.num_elements() + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

// Collects the parameters of dense decoders; a weight is the rows of its parts one below the other.
class ParameterList {
 public:
  // Parts share their column count; rows[i] of part i.
  void add_weight(const std::string& name,
                  const std::vector<std::pair<std::string, int64_t>>& parts, int64_t columns,
                  int shard_axis) {
    ParameterInfo info{.name = name,
                       .shape = {0, columns},
                       .shard_axis = shard_axis,
                       .shard_dim = GridDim::kTensor};
    for (const auto& [hf_name, rows] : parts) {
      const int64_t begin = info.shape[0] * columns;
      info.parts.push_back({hf_name, {rows, columns}, begin, begin + rows * columns});
      info.shape[0] += rows;
    }
    infos.push_back(std::move(info));
  }
  // One-dimensional parameters are not decayed.
  void add_vector(const std::string& name,
                  const std::vector<std::pair<std::string, int64_t>>& parts, InitKind init,
                  GridDim shard_dim) {
    ParameterInfo info{
        .name = name, .shape = {0}, .decayed = false, .shard_dim = shard_dim, .init = init};
    if (shard_dim != GridDim::kNone) info.shard_axis = 0;
    for (const auto& [hf_name, size] : parts) {
      info.parts.push_back({hf_name, {size}, info.shape[0], info.shape[0] + size});
      info.shape[0] += size;
    }
    infos.push_back(std::move(info));
  }
  void add_norm(const std::string& name, const std::string& hf_name, int64_t size) {
    add_vector(name, {{hf_name, size}}, InitKind::kOnes, GridDim::kNone);
  }

  std::vector<ParameterInfo> infos;
};

void add_attention(ParameterList& list, const ModelSpec& s, const std::string& own,
                   const std::string& hf) {
  const std::string attention = hf + "self_attn.";
  const auto qkv = [&](const char* kind) {
    return std::vector<std::pair<std::string, int64_t>>{
        {attention + "q_proj." + kind, s.q_size()},
        {attention + "k_proj." + kind, s.kv_size()},
        {attention + "v_proj." + kind, s.kv_size()}};
  };
  list.add_weight(own + "attention.qkv.weight", qkv("weight"), s.hidden_size, 0);
  if (s.qkv_bias)
    list.add_vector(own + "attention.qkv.bias", qkv("bias"), InitKind::kZeros, GridDim::kTensor);
  if (s.qk_norm) {
    list.add_norm(own + "attention.q_norm.weight", attention + "q_norm.weight", s.head_dim);
    list.add_norm(own + "attention.k_norm.weight", attention + "k_norm.weight", s.head_dim);
  }
  list.add_weight(own + "attention.o.weight", {{attention + "o_proj.weight", s.hidden_size}},
                  s.q_size(), 1);
  if (s.o_bias) {
    list.add_vector(own + "attention.o.bias", {{attention + "o_proj.bias", s.hidden_size}},
                    InitKind::kZeros, GridDim::kNone);
  }
}

void add_mlp(ParameterList& list, const ModelSpec& s, const std::string& own,
             const std::string& hf) {
  const int64_t f = s.intermediate_size;
  const std::string mlp = hf + "mlp.";
  if (s.fused_gate_up) {
    list.add_weight(own + "mlp.gate_up.weight", {{mlp + "gate_up_proj.weight", 2 * f}},
                    s.hidden_size, 0);
  } else {
    list.add_weight(own + "mlp.gate_up.weight",
                    {{mlp + "gate_proj.weight", f}, {mlp + "up_proj.weight", f}}, s.hidden_size, 0);
  }
  list.add_weight(own + "mlp.down.weight", {{mlp + "down_proj.weight", s.hidden_size}}, f, 1);
  if (s.mlp_bias) {
    list.add_vector(own + "mlp.gate_up.bias",
                    {{mlp + "gate_proj.bias", f}, {mlp + "up_proj.bias", f}}, InitKind::kZeros,
                    GridDim::kTensor);
    list.add_vector(own + "mlp.down.bias", {{mlp + "down_proj.bias", s.hidden_size}},
                    InitKind::kZeros, GridDim::kNone);
  }
}

void add_layer(ParameterList& list, const ModelSpec& s, int64_t layer) {
  const std::string own = fmt::format("layers.{}.", layer),
                    hf = fmt::format("model.layers.{}.", layer);
  list.add_norm(own + "input_norm.weight", hf + "input_layernorm.weight", s.hidden_size);
  add_attention(list, s, own, hf);
  if (s.sandwich_norms) {
    list.add_norm(own + "post_attention_norm.weight", hf + "post_self_attn_layernorm.weight",
                  s.hidden_size);
  }
  // In every family `post_attention_layernorm` is the norm before the MLP.
  list.add_norm(own + "mlp_norm.weight", hf + "post_attention_layernorm.weight", s.hidden_size);
  add_mlp(list, s, own, hf);
  if (s.sandwich_norms)
    list.add_norm(own + "post_mlp_norm.weight", hf + "post_mlp_layernorm.weight", s.hidden_size);
}

}  // namespace

std::vector<ParameterInfo> list_dense_parameters(const ModelSpec& s) {
  ParameterList list;
  list.add_weight("embedding.weight", {{"model.embed_tokens.weight", s.vocab_size}}, s.hidden_size,
                  0);
  for (int64_t layer = 0; layer < s.num_layers; ++layer) add_layer(list, s, layer);
  list.add_norm("final_norm.weight", "model.norm.weight", s.hidden_size);
  if (!s.tied_embeddings)
    list.add_weight("lm_head.weight", {{"lm_head.weight", s.vocab_size}}, s.hidden_size, 0);
  return list.infos;
}

int64_t ParameterInfo::num_elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

// Gives every parameter its place in the flat buffers.
void ParameterStore::place_parameters(const ModelSpec& spec) {
  infos_ = list_parameters(spec);
  for (auto& info : infos_) {
    info.offset = num_elements_;
    num_elements_ += aligned_elements(info);
  }
}

int64_t ParameterStore::weight_bytes(const ModelSpec& spec, tensor::Device device) {
  int64_t elements = 0;
  for (const auto& info : list_parameters(spec)) elements += aligned_elements(info);
  return elements * tensor::dtype_bytes(tensor::compute_dtype(device));
}

ParameterStore::ParameterStore(const ModelSpec& spec, tensor::Tensor memory)
    : device_(memory.device()) {
  place_parameters(spec);
  SLX_CHECK_LE(weight_bytes(spec, device_), memory.size_bytes());
  flat_weights_ =
      tensor::Tensor(memory.raw(), tensor::compute_dtype(device_), device_, {num_elements_});
}

ParameterStore::ParameterStore(const ModelSpec& spec, tensor::Device device, bool with_gradients)
    : device_(device) {
  place_parameters(spec);
  const tensor::DType dtype = tensor::compute_dtype(device);
  weights_ = tensor::Buffer(device, num_elements_ * tensor::dtype_bytes(dtype), "weights");
  flat_weights_ = weights_.view(dtype, {num_elements_});
  if (with_gradients) {
    gradients_ = tensor::Buffer(device, num_elements_ * 4, "gradients");
    flat_gradients_ = gradients_.view(tensor::DType::kF32, {num_elements_});
  }
}

bool ParameterStore::contains(const std::string& name) const {
  for (const auto& info : infos_) {
    if (info.name == name) return true;
  }
  return false;
}

tensor::Tensor ParameterStore::view(const tensor::Tensor& flat, const std::string& name) const {
  for (const auto& info : infos_) {
    if (info.name != name) continue;
    const tensor::Tensor range = flat.rows(info.offset, info.offset + info.num_elements());
    return info.shape.size() == 1 ? range : range.reshaped({info.shape[0], info.shape[1]});
  }
  SLX_CHECK(false, "no parameter {}", name);
  return {};
}

void ParameterStore::write_weights(const ParameterInfo& info, int64_t begin, const float* values,
                                   int64_t n) {
  const tensor::Tensor to = flat_weights_.rows(info.offset + begin, info.offset + begin + n);
  const tensor::Stream stream = tensor::compute_stream(device_);
  if (to.dtype() == tensor::DType::kF32) return tensor::upload(stream, to, values);
  std::vector<char> rounded(static_cast<size_t>(to.size_bytes()));
  tensor::convert_elements(tensor::DType::kF32, values, to.dtype(), rounded.data(), n);
  tensor::upload(stream, to, rounded.data());
}

void ParameterStore::read_weights(const ParameterInfo& info, int64_t begin, float* values,
                                  int64_t n) const {
  const tensor::Tensor from = flat_weights_.rows(info.offset + begin, info.offset + begin + n);
  const tensor::Stream stream = tensor::compute_stream(device_);
  if (from.dtype() == tensor::DType::kF32) return tensor::download(stream, values, from);
  std::vector<char> stored(static_cast<size_t>(from.size_bytes()));
  tensor::download(stream, stored.data(), from);
  tensor::convert_elements(from.dtype(), stored.data(), tensor::DType::kF32, values, n);
}

tensor::Tensor ParameterStore::weight(const std::string& name) const {
  return view(flat_weights_, name);
}

tensor::Tensor ParameterStore::gradient(const std::string& name) const {
  SLX_CHECK(flat_gradients_.defined(), "store without gradients");
  return view(flat_gradients_, name);
}

}  // namespace slimexx::model

#include "slimexx/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config_reader.h"
#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

constexpr int64_t kGroupAlignmentBytes = 256;
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
    ParameterInfo info{.name = name, .shape = {0, columns}};
    Shard shard{.axis = shard_axis};
    for (const auto& [hf_name, rows] : parts) {
      info.parts.push_back({.name = hf_name, .shape = {rows, columns}, .at = {info.shape[0], 0}});
      info.shape[0] += rows;
      if (shard_axis == 0) shard.sections.push_back({rows});
    }
    info.shards = {shard};
    infos.push_back(std::move(info));
  }
  // One-dimensional parameters are not decayed.
  void add_vector(const std::string& name,
                  const std::vector<std::pair<std::string, int64_t>>& parts, InitKind init,
                  GridDim shard_dim) {
    ParameterInfo info{
        .name = name, .shape = {0}, .decayed = false, .init = init, .zero_before_backward = true};
    Shard shard{.dim = shard_dim};
    for (const auto& [hf_name, size] : parts) {
      info.parts.push_back({.name = hf_name, .shape = {size}, .at = {info.shape[0]}});
      info.shape[0] += size;
      shard.sections.push_back({size});
    }
    if (shard_dim != GridDim::kNone) info.shards = {shard};
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
  list.infos[0].zero_before_backward = !s.tied_embeddings;
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

namespace {

// Groups start on a vector of any device.
int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kGroupAlignmentBytes - 1) / kGroupAlignmentBytes * kGroupAlignmentBytes;
}

// Bytes of all groups one behind another, of weights or of gradients.
int64_t sum_bytes(std::span<const ParameterGroup> groups,
                  int64_t (*group_bytes)(const ParameterGroup&)) {
  int64_t total = 0, end = 0;
  for (const ParameterGroup& group : groups) {
    end = total + group_bytes(group);
    total = aligned_bytes(end);
  }
  return end;
}
int64_t bytes_of_weights(const ParameterGroup& group) {
  return group.num_elements * tensor::dtype_bytes(group.dtype);
}
int64_t bytes_of_gradients(const ParameterGroup& group) {
  return group.trainable ? group.num_elements * 4 : 0;
}

// Sets group and offset of the parameters; returns the groups, without memory.
std::vector<ParameterGroup> place_parameters(std::vector<ParameterInfo>& infos,
                                             tensor::Device device) {
  std::vector<ParameterGroup> groups;
  for (ParameterInfo& info : infos) {
    const tensor::DType dtype = info.dtype.value_or(tensor::compute_dtype(device));
    const auto group = std::ranges::find_if(groups, [&](const ParameterGroup& g) {
      return g.reduce_group == info.reduce_group && g.dtype == dtype &&
             g.trainable == info.trainable;
    });
    info.group = static_cast<int32_t>(group - groups.begin());
    if (group == groups.end())
      groups.push_back(
          {.reduce_group = info.reduce_group, .dtype = dtype, .trainable = info.trainable});
    int64_t& num_elements = groups[static_cast<size_t>(info.group)].num_elements;
    info.offset = num_elements;
    num_elements += aligned_elements(info);
  }
  return groups;
}

}  // namespace

int64_t ParameterStore::weight_bytes(std::vector<ParameterInfo> infos, tensor::Device device) {
  return sum_bytes(place_parameters(infos, device), bytes_of_weights);
}

int64_t ParameterStore::weight_bytes(const ModelSpec& spec, tensor::Device device) {
  return weight_bytes(list_parameters(spec), device);
}

ParameterStore::ParameterStore(std::vector<ParameterInfo> infos, tensor::Tensor memory)
    : device_(memory.device()),
      infos_(std::move(infos)),
      groups_(place_parameters(infos_, device_)) {
  SLX_CHECK_LE(sum_bytes(groups_, bytes_of_weights), memory.size_bytes());
  complete_infos();
  place_weights(static_cast<char*>(memory.raw()));
}

ParameterStore::ParameterStore(std::vector<ParameterInfo> infos, tensor::Device device,
                               bool with_gradients)
    : device_(device),
      infos_(std::move(infos)),
      groups_(place_parameters(infos_, device)),
      weights_(device, sum_bytes(groups_, bytes_of_weights), "weights") {
  complete_infos();
  place_weights(static_cast<char*>(weights_.data()));
  if (!with_gradients) return;
  gradients_ = tensor::Buffer(device, sum_bytes(groups_, bytes_of_gradients), "gradients");
  int64_t begin = 0;
  for (ParameterGroup& group : groups_) {
    if (!group.trainable) continue;
    group.gradients = gradients_.view(tensor::DType::kF32, {group.num_elements}, begin);
    begin = aligned_bytes(begin + bytes_of_gradients(group));
  }
}

ParameterStore::ParameterStore(const ModelSpec& spec, tensor::Tensor memory)
    : ParameterStore(list_parameters(spec), memory) {}

ParameterStore::ParameterStore(const ModelSpec& spec, tensor::Device device, bool with_gradients)
    : ParameterStore(list_parameters(spec), device, with_gradients) {}

namespace {

void read_values(const tensor::Tensor& from, float* values) {
  const tensor::Stream stream = tensor::compute_stream(from.device());
  if (from.dtype() == tensor::DType::kF32) return tensor::download(stream, values, from);
  std::vector<char> stored(static_cast<size_t>(from.size_bytes()));
  tensor::download(stream, stored.data(), from);
  tensor::convert_elements(from.dtype(), stored.data(), tensor::DType::kF32, values,
                           from.num_elements());
}

}  // namespace

// Ids, and the parts in full.
void ParameterStore::complete_infos() {
  for (ParameterInfo& info : infos_) {
    info.id = static_cast<ParameterId>(&info - infos_.data());
    complete_parts(info);
    SLX_CHECK(ids_.emplace(info.name, info.id).second, "two parameters {}", info.name);
  }
}

void ParameterStore::place_weights(char* memory) {
  for (ParameterGroup& group : groups_) {
    group.weights = tensor::Tensor(memory, group.dtype, device_, {group.num_elements});
    memory += aligned_bytes(bytes_of_weights(group));
  }
}

const ParameterGroup& ParameterStore::only_group() const {
  SLX_CHECK_EQ(groups_.size(), 1u);
  return groups_[0];
}

int64_t ParameterStore::num_elements() const {
  int64_t n = 0;
  for (const ParameterGroup& group : groups_) n += group.num_elements;
  return n;
}

tensor::Tensor ParameterStore::gradient_memory() const {
  if (gradients_.data() == nullptr) return {};
  return gradients_.view(tensor::DType::kU8, {gradients_.size_bytes()});
}

ParameterId ParameterStore::find(std::string_view name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? kNoParameter : it->second;
}

const ParameterInfo& ParameterStore::info(ParameterId id) const {
  SLX_CHECK(id >= 0 && id < std::ssize(infos_), "no parameter {}", id);
  return infos_[static_cast<size_t>(id)];
}

tensor::Tensor ParameterStore::view(const tensor::Tensor& flat, const ParameterInfo& info) const {
  const auto& s = info.shape;
  const tensor::Tensor range = flat.rows(info.offset, info.offset + info.num_elements());
  if (s.size() == 1) return range;
  return s.size() == 2 ? range.reshaped({s[0], s[1]}) : range.reshaped({s[0], s[1], s[2]});
}

tensor::Tensor ParameterStore::weight(ParameterId id) const {
  if (id == kNoParameter) return {};
  return view(group_of(info(id)).weights, info(id));
}

tensor::Tensor ParameterStore::gradient(ParameterId id) const {
  SLX_CHECK(gradients_.data() != nullptr, "store without gradients");
  if (id == kNoParameter || !info(id).trainable) return {};
  return view(group_of(info(id)).gradients, info(id));
}

void ParameterStore::write_weights(const ParameterInfo& info, int64_t begin, const float* values,
                                   int64_t n) {
  const tensor::Tensor to =
      group_of(info).weights.rows(info.offset + begin, info.offset + begin + n);
  const tensor::Stream stream = tensor::compute_stream(device_);
  if (to.dtype() == tensor::DType::kF32) return tensor::upload(stream, to, values);
  std::vector<char> rounded(static_cast<size_t>(to.size_bytes()));
  tensor::convert_elements(tensor::DType::kF32, values, to.dtype(), rounded.data(), n);
  tensor::upload(stream, to, rounded.data());
}

void ParameterStore::read_weights(const ParameterInfo& info, int64_t begin, float* values,
                                  int64_t n) const {
  read_values(group_of(info).weights.rows(info.offset + begin, info.offset + begin + n), values);
}

// Zeros of a frozen parameter.
void ParameterStore::read_gradients(const ParameterInfo& info, int64_t begin, float* values,
                                    int64_t n) const {
  if (!info.trainable) {
    std::fill_n(values, n, 0.0f);
    return;
  }
  read_values(group_of(info).gradients.rows(info.offset + begin, info.offset + begin + n), values);
}

}  // namespace slimexx::model

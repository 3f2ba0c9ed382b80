#include "slimexx/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

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

}  // namespace

int64_t ParameterInfo::num_elements() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

namespace {

// Rounds up, so that groups start aligned for vector loads on any device.
int64_t aligned_bytes(int64_t bytes) {
  return (bytes + kGroupAlignmentBytes - 1) / kGroupAlignmentBytes * kGroupAlignmentBytes;
}

// Total bytes of all groups, for weights or for gradients.
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

// Sets the group and offset of each parameter; returns the groups without memory.
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

// Sets the ids and completes the parts.
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
  if (id == kNoParameter || !info(id).trainable) return {};  // a stage may be all frozen
  SLX_CHECK(gradients_.data() != nullptr, "store without gradients");
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

// Gives zeros for a frozen parameter.
void ParameterStore::read_gradients(const ParameterInfo& info, int64_t begin, float* values,
                                    int64_t n) const {
  if (!info.trainable) {
    std::fill_n(values, n, 0.0f);
    return;
  }
  read_values(group_of(info).gradients.rows(info.offset + begin, info.offset + begin + n), values);
}

}  // namespace slimexx::model

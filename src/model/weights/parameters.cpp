#include "slimexx/model/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/encoding.h"
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

// Sets the group and offset of a parameter; adds its group, without memory, if there is none yet.
void place_parameter(ParameterInfo& info, tensor::Device device,
                     std::vector<ParameterGroup>& groups) {
  const tensor::DType dtype = info.dtype.value_or(tensor::compute_dtype(device));
  const auto group = std::ranges::find_if(groups, [&](const ParameterGroup& g) {
    return g.reduce_group == info.reduce_group && g.dtype == dtype &&
           g.trainable == info.trainable && g.is_derived == info.is_derived;
  });
  info.group = static_cast<int32_t>(group - groups.begin());
  if (group == groups.end())
    groups.push_back({.reduce_group = info.reduce_group,
                      .dtype = dtype,
                      .trainable = info.trainable,
                      .is_derived = info.is_derived});
  int64_t& num_elements = groups[static_cast<size_t>(info.group)].num_elements;
  info.offset = num_elements;
  num_elements += aligned_elements(info);
}

std::vector<ParameterGroup> place_parameters(std::vector<ParameterInfo>& infos,
                                             std::vector<ParameterInfo>& derived,
                                             tensor::Device device) {
  std::vector<ParameterGroup> groups;
  for (ParameterInfo& info : infos)
    if (info.has_plain) place_parameter(info, device, groups);
  for (ParameterInfo& info : derived) place_parameter(info, device, groups);
  return groups;
}

// Completes the parts, on which the derived parameters depend.
std::vector<ParameterInfo> complete_all(std::vector<ParameterInfo> infos) {
  for (ParameterInfo& info : infos) complete_parts(info);
  return infos;
}

}  // namespace

int64_t ParameterStore::weight_bytes(std::vector<ParameterInfo> infos, tensor::Device device) {
  infos = complete_all(std::move(infos));
  std::vector<ParameterInfo> derived = list_derived(infos);
  return sum_bytes(place_parameters(infos, derived, device), bytes_of_weights);
}

int64_t ParameterStore::weight_bytes(const ModelSpec& spec, tensor::Device device) {
  return weight_bytes(list_parameters(spec), device);
}

ParameterStore::ParameterStore(std::vector<ParameterInfo> infos, tensor::Tensor memory)
    : device_(memory.device()),
      infos_(complete_all(std::move(infos))),
      derived_(list_derived(infos_)),
      groups_(place_parameters(infos_, derived_, device_)) {
  SLX_CHECK_LE(sum_bytes(groups_, bytes_of_weights), memory.size_bytes());
  complete_infos();
  place_weights(static_cast<char*>(memory.raw()));
}

ParameterStore::ParameterStore(std::vector<ParameterInfo> infos, tensor::Device device,
                               bool with_gradients)
    : device_(device),
      infos_(complete_all(std::move(infos))),
      derived_(list_derived(infos_)),
      groups_(place_parameters(infos_, derived_, device)),
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

// Sets the ids.
void ParameterStore::complete_infos() {
  for (ParameterInfo& info : infos_) {
    info.id = static_cast<ParameterId>(&info - infos_.data());
    SLX_CHECK(ids_.emplace(info.name, info.id).second, "two parameters are named {}", info.name);
    if (info.encoding)
      values_of_.emplace(info.id,
                         static_cast<ParameterId>(std::ssize(infos_) + 2 * std::ssize(values_of_)));
  }
  for (ParameterInfo& info : derived_) complete_parts(info);
  if (!derived_.empty()) list_units();
}

void ParameterStore::list_units() {
  std::vector<int32_t> all;
  std::vector<std::pair<ParameterId, int64_t>> begins;
  for (const ParameterInfo& info : infos_) {
    if (!info.encoding) continue;
    const auto table = list_block_units(info, *info.encoding);
    SLX_CHECK(table.has_value(), "{} cannot be encoded", info.name);
    begins.emplace_back(info.id, std::ssize(all));
    all.insert(all.end(), table->begin(), table->end());
  }
  units_ = tensor::Buffer(device_, std::ssize(all) * 4, "blocks of encoded weights");
  const tensor::Tensor flat = units_.view(tensor::DType::kI32, {std::ssize(all)});
  tensor::upload(tensor::compute_stream(device_), flat, all.data());
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto [id, begin] = begins[i];
    const int64_t end = i + 1 < begins.size() ? begins[i + 1].second : std::ssize(all);
    const int64_t per_block = info(id).encoding->units_per_block();
    units_of_.emplace(id, flat.rows(begin, end).reshaped({(end - begin) / per_block, per_block}));
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
  for (const ParameterGroup& group : groups_)
    if (!group.is_derived) n += group.num_elements;
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
  const int64_t n = std::ssize(infos_);
  SLX_CHECK(id >= 0 && id < n + std::ssize(derived_), "there is no parameter with id {}", id);
  return id < n ? infos_[static_cast<size_t>(id)] : derived_[static_cast<size_t>(id - n)];
}

tensor::Tensor ParameterStore::view(const tensor::Tensor& flat, const ParameterInfo& info) const {
  const auto& s = info.shape;
  const tensor::Tensor range = flat.rows(info.offset, info.offset + info.num_elements());
  if (s.size() == 1) return range;
  return s.size() == 2 ? range.reshaped({s[0], s[1]}) : range.reshaped({s[0], s[1], s[2]});
}

tensor::Tensor ParameterStore::weight(ParameterId id) const {
  if (id == kNoParameter || !info(id).has_plain) return {};
  return view(group_of(info(id)).weights, info(id));
}

ops::Linear ParameterStore::linear(ParameterId id) const {
  ops::Linear held{.weight = weight(id)};
  const auto values = values_of_.find(id);
  if (values == values_of_.end()) return held;
  held.values = weight(values->second);
  held.scales = weight(values->second + 1);
  return held;
}

tensor::Tensor ParameterStore::block_units(ParameterId id) const {
  const auto units = units_of_.find(id);
  return units == units_of_.end() ? tensor::Tensor{} : units->second;
}

tensor::Tensor ParameterStore::gradient(ParameterId id) const {
  if (id == kNoParameter || !info(id).trainable) return {};  // a stage may be all frozen
  SLX_CHECK(gradients_.data() != nullptr, "the store has no gradients");
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

void ParameterStore::write_bytes(const ParameterInfo& info, int64_t begin, const void* values,
                                 int64_t n) {
  const tensor::Tensor to =
      group_of(info).weights.rows(info.offset + begin, info.offset + begin + n);
  tensor::upload(tensor::compute_stream(device_), to, values);
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

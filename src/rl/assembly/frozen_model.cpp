#include "rl/assembly/frozen_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/ops/context.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::rl {
namespace {

// Whether other ranks hold and save every part of this parameter, for example, the copy of the
// embedding that the last stage holds for a trained MTP layer.
bool is_copy(const model::ParameterInfo& info) {
  return std::ranges::none_of(info.parts, &model::HfPart::is_counted);
}

// The first parameter in `some` that `others` lack or have with another shape; null if there is
// none.
const model::ParameterInfo* find_without_match(const std::vector<model::ParameterInfo>& some,
                                               const std::vector<model::ParameterInfo>& others) {
  std::map<std::string_view, const model::ParameterInfo*> by_name;
  for (const model::ParameterInfo& info : others) by_name[info.name] = &info;
  for (const model::ParameterInfo& info : some) {
    if (is_copy(info)) continue;
    const auto found = by_name.find(info.name);
    if (found == by_name.end() || found->second->shape != info.shape) return &info;
  }
  return nullptr;
}

// On the CPU, weights are in host memory in any case, so a model that scores in every rollout keeps
// its weights in place.
bool is_transient(const FrozenModelOptions& options, const std::vector<model::ParameterInfo>& infos,
                  const model::ParameterStore& policy, tensor::Device device) {
  return (options.scores_rarely || !device.is_cpu()) &&
         model::ParameterStore::weight_bytes(infos, device) <=
             policy.gradient_memory().size_bytes();
}

}  // namespace

train::StageDecoders borrow(const Decoders& decoders) {
  std::vector<const model::Decoder*> chunks;
  for (const auto& decoder : decoders) chunks.push_back(decoder.get());
  return train::StageDecoders(std::move(chunks));
}

FrozenModel* find_frozen(std::vector<FrozenModel>& models, std::string_view name) {
  for (FrozenModel& frozen : models)
    if (frozen.options.name == name) return &frozen;
  return nullptr;
}

const FrozenModel* find_frozen(const std::vector<FrozenModel>& models, std::string_view name) {
  for (const FrozenModel& frozen : models)
    if (frozen.options.name == name) return &frozen;
  return nullptr;
}

FrozenModel place_frozen_model(const RankInputs& inputs, const FrozenModelOptions& options,
                               LoadedModel described, const Decoders& policy_decoders,
                               const model::ParameterStore& policy) {
  FrozenModel frozen{.options = options, .model = std::move(described)};
  const model::ModelSpec& spec = frozen.model.spec;
  frozen.decoders = make_decoders(spec, inputs.model_ranks, inputs.device,
                                  std::min(spec.max_positions, policy_decoders[0]->max_positions()),
                                  inputs.engine_shape.leaves);
  frozen.is_transient =
      is_transient(options, frozen.model.held_parameters(), policy, inputs.device);
  frozen.is_saved = options.follows_policy;
  return frozen;
}

int64_t plan_frozen_scoring(const train::Trainer& trainer, std::span<const FrozenModel> models,
                            const model::ParameterStore& policy, int64_t longest,
                            int64_t num_samples) {
  int64_t most = 0;
  for (const FrozenModel& frozen : models) {
    const auto plan = [&](const model::ParameterStore& store) {
      return trainer.plans().plan_scoring(borrow(frozen.decoders), store, longest, num_samples);
    };
    most = std::max(most, frozen.is_transient
                              ? plan({frozen.model.held_parameters(), policy.gradient_memory()})
                              : plan(*frozen.model.store));
  }
  return most;
}

void bring_in(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy) {
  if (!frozen.is_transient) return;
  const tensor::Tensor memory = policy.gradient_memory();
  frozen.model.store =
      std::make_unique<model::ParameterStore>(frozen.model.held_parameters(), memory);
  tensor::upload(tensor::compute_stream(device), memory.rows(0, frozen.copy.size_bytes()),
                 frozen.copy.data());
}

void take_out(FrozenModel& frozen, train::Trainer& trainer) {
  if (!frozen.is_transient) return;
  frozen.model.store.reset();
  trainer.clear_gradients();
}

void keep_copy(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy,
               train::Trainer& trainer) {
  if (!frozen.is_transient) return;
  tensor::download(tensor::compute_stream(device), frozen.copy.data(),
                   policy.gradient_memory().rows(0, frozen.copy.size_bytes()));
  take_out(frozen, trainer);
}

void copy_policy(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy,
                 train::Trainer& trainer) {
  bring_in(device, frozen, policy);
  const model::ParameterStore& store = *frozen.model.store;
  tensor::Arena no_scratch(device, 0, "copies");
  for (const model::ParameterInfo& info : store.infos())
    ops::copy(ops::compute_context(no_scratch), store.weight(info.id),
              policy.weight(policy.find(info.name)));
  for (const model::ParameterInfo& info : store.infos()) {
    if (!info.encoding) continue;
    const ops::Linear own = store.linear(info.id);
    const ops::Linear from = policy.linear(policy.find(info.name));
    tensor::copy_bytes(tensor::compute_stream(device), own.values, from.values);
    tensor::copy_bytes(tensor::compute_stream(device), own.scales, from.scales);
  }
  keep_copy(device, frozen, policy, trainer);
}

void check_same_parameters(const FrozenModel& frozen, const model::ParameterStore& policy,
                           const std::string& why) {
  const auto& own = frozen.model.held_parameters();
  const model::ParameterInfo* odd = find_without_match(own, policy.infos());
  if (odd == nullptr) odd = find_without_match(policy.infos(), own);
  if (odd == nullptr) return;
  const std::string& name = frozen.options.name;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: policy and {} differ in {}", why, name, odd->name),
              fmt::format("use a {} with the policy's architecture", name), frozen.options.folder);
}

}  // namespace slimexx::rl

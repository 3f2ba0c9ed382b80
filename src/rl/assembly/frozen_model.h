// Models besides the policy that only score. The reference of KL terms is one row of
// RunConfig::frozen_models. Each model has decoders of its own on the policy's grid. Its weights
// stay on the device, or lie in host memory and occupy the memory of the policy's gradients while
// the model scores.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rl/assembly/rank_inputs.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/trainer.h"

namespace slimexx::rl {

// Pipeline stages of this rank, by chunk.
using Decoders = std::vector<std::unique_ptr<model::Decoder>>;
train::StageDecoders borrow(const Decoders& decoders);

struct FrozenModel {
  FrozenModelOptions options;
  LoadedModel model;  // `store` is null while a transient model does not score
  Decoders decoders = {};
  bool is_transient = false;        // it has device memory only while it scores
  tensor::StagingBuffer copy = {};  // host memory: weights of a transient model
  bool is_saved = false;            // checkpoints hold it: it follows the policy, or did earlier
};

// Null if no model has this name.
FrozenModel* find_frozen(std::vector<FrozenModel>& models, std::string_view name);
const FrozenModel* find_frozen(const std::vector<FrozenModel>& models, std::string_view name);

// Makes decoders for `described`, whose weights are not read yet, and decides where the weights
// will be kept. `policy` and `policy_decoders` are the policy's on this rank.
FrozenModel place_frozen_model(const RankInputs& inputs, const FrozenModelOptions& options,
                               LoadedModel described, const Decoders& policy_decoders,
                               const model::ParameterStore& policy);

// Bytes of the largest scoring pass of any of `models`, measured by ActivationPlans::plan_scoring.
int64_t plan_frozen_scoring(const train::Trainer& trainer, std::span<const FrozenModel> models,
                            const model::ParameterStore& policy, int64_t longest,
                            int64_t num_samples);

// Loads a transient model's weights into the memory of the policy's gradients; does nothing for
// other models.
void bring_in(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy);
// Gives the memory back to the policy's gradients, which are then zero.
void take_out(FrozenModel& frozen, train::Trainer& trainer);
// Copies the weights of a transient model to host memory, then take_out().
void keep_copy(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy,
               train::Trainer& trainer);
// Copies the policy's weights. Both models have the same parameters.
void copy_policy(tensor::Device device, FrozenModel& frozen, const model::ParameterStore& policy,
                 train::Trainer& trainer);
// Throws an Error(kUsage) whose text begins with `why` if model and policy have different
// parameters.
void check_same_parameters(const FrozenModel& frozen, const model::ParameterStore& policy,
                           const std::string& why);

}  // namespace slimexx::rl

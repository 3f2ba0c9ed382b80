// The weights that a run starts from: those of a model's folder or, with debug.random_weights,
// random ones with the shapes in its config.json. Used for policy and reference. All functions are
// collective over the session's model ranks.
#pragma once
#include <memory>
#include <string>

#include "rl/generation/session.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::rl {

// Describes the model without its weights, like describe_model.
LoadedModel describe_start(const Session& session, const std::string& folder, Fp8Use fp8_use);
// Loads the model with its weights. `training` as for load_model; null: the model only scores.
LoadedModel load_start(const Session& session, const std::string& folder, bool with_gradients,
                       const train::TrainOptions* training = nullptr);
// Loads the weights of a described model into `memory`, encoded (see ParameterStore), for models
// that are not trained.
std::unique_ptr<model::ParameterStore> load_start_weights(const Session& session,
                                                          const LoadedModel& described,
                                                          tensor::Tensor memory);

}  // namespace slimexx::rl

#include "rl/checkpoint/start_weights.h"

namespace slimexx::rl {
namespace {

bool is_random(const Session& session) { return session.config.debug.random_weights; }

// The seed is the same for all models, so models of the same shapes get the same weights.
uint64_t seed_of(const Session& session) { return static_cast<uint64_t>(session.config.data.seed); }

}  // namespace

LoadedModel describe_start(const Session& session, const std::string& folder) {
  const Fp8Choice fp8 = fp8_choice(session.config);
  return describe_model(folder, &session.model_ranks, !is_random(session), {.fp8 = &fp8});
}

LoadedModel load_start(const Session& session, const std::string& folder, bool with_gradients,
                       const train::TrainOptions* training) {
  const tensor::Device device = session.request.device;
  const Fp8Choice fp8 = fp8_choice(session.config);
  const ModelUse use{.training = training, .fp8 = &fp8};
  if (is_random(session))
    return make_random_model(folder, device, with_gradients, seed_of(session), &session.model_ranks,
                             use);
  return load_model(folder, device, with_gradients, session.is_root(), &session.model_ranks, use);
}

std::unique_ptr<model::ParameterStore> load_start_weights(const Session& session,
                                                          const LoadedModel& described,
                                                          tensor::Tensor memory) {
  std::unique_ptr<model::ParameterStore> store;
  if (is_random(session)) {
    store = std::make_unique<model::ParameterStore>(described.held_parameters(), memory);
    model::init_random_weights(*store, described.spec, seed_of(session), /*spread_tokens=*/true);
  } else {
    store = load_weights(described, memory, &session.model_ranks);
  }
  encode_weights(*store, session.request.device);
  return store;
}

}  // namespace slimexx::rl

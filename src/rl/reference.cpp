// The reference model of KL terms. It is of its own sizes, and of the policy shares the vocabulary
// alone. Where its weights fit in the gradients' memory it is there only while it scores: between
// gradients are not needed. The rest of the time a copy lies in host memory, page-locked where
// there is CUDA.
#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/error.h"
#include "slimexx/observe/span.h"
#include "stages.h"
#include "start_weights.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

int64_t weight_bytes(const Session& session, const LoadedModel& reference) {
  return model::ParameterStore::weight_bytes(reference.held_parameters(), session.request.device);
}

}  // namespace

bool wants_reference(const RunConfig& config) {
  const bool is_asked = !config.rl.logs_reference_only() || config.rl.log_ref_kl_interval > 0;
  return !config.model.ref_load.empty() && !config.is_sft() && is_asked &&
         (config.rl.use_kl_loss || config.rl.kl_coef != 0);
}

void build_reference(const Session& session, int64_t longest, TrainerSide& trainer_side) {
  const RunConfig& config = session.config;
  if (!wants_reference(config)) return;
  trainer_side.reference = describe_start(session, config.model.ref_load);
  const LoadedModel& policy = trainer_side.policy;
  const model::ModelSpec& spec = trainer_side.reference.spec;
  if (spec.vocab_size != policy.spec.vocab_size)
    throw Error(ErrorCode::kUsage,
                fmt::format("the reference has {} tokens, the policy {}", spec.vocab_size,
                            policy.spec.vocab_size),
                "use a reference of the same tokenizer", config.model.ref_load);
  if (longest > spec.max_positions)
    throw Error(ErrorCode::kUsage,
                fmt::format("the longest prompt and a full response are {} tokens, the reference "
                            "knows {} positions",
                            longest, spec.max_positions),
                "lower rollout.rollout_max_response_len, or use a reference of as many positions",
                config.model.ref_load + "/config.json: max_position_embeddings");
  trainer_side.reference_decoders =
      make_decoders(spec, session.model_ranks, session.request.device,
                    std::min(spec.max_positions, trainer_side.decoders[0]->max_positions()),
                    session.engine_shape.leaves);
  trainer_side.reference_is_transient = is_transient_reference(
      config, trainer_side.reference.held_parameters(), *policy.store, session.request.device);
  if (!trainer_side.reference_is_transient)
    trainer_side.reference = load_start(session, config.model.ref_load, false);
}

void keep_reference(const Session& session, TrainerSide& trainer_side) {
  if (!trainer_side.reference_is_transient) return;
  observe::Span span("load_model");
  LoadedModel& reference = trainer_side.reference;
  const tensor::Device device = session.request.device;
  const tensor::Tensor memory = trainer_side.policy.store->gradient_memory();
  const int64_t bytes = weight_bytes(session, reference);
  trainer_side.reference_copy = tensor::StagingBuffer(device, bytes, "reference model");
  reference.store = load_start_weights(session, reference, memory);
  tensor::download(tensor::compute_stream(device), trainer_side.reference_copy.data(),
                   memory.rows(0, bytes));
  take_reference_out(trainer_side);
}

void bring_reference_in(const Session& session, TrainerSide& trainer_side) {
  if (!trainer_side.reference_is_transient) return;
  LoadedModel& reference = trainer_side.reference;
  const tensor::Tensor memory = trainer_side.policy.store->gradient_memory();
  reference.store = std::make_unique<model::ParameterStore>(reference.held_parameters(), memory);
  tensor::upload(tensor::compute_stream(session.request.device),
                 memory.rows(0, trainer_side.reference_copy.size_bytes()),
                 trainer_side.reference_copy.data());
}

void take_reference_out(TrainerSide& trainer_side) {
  if (!trainer_side.reference_is_transient) return;
  trainer_side.reference.store.reset();
  trainer_side.trainer->clear_gradients();
}

}  // namespace slimexx::rl

// The reference model of KL terms. It may have its own sizes; only the vocabulary must be the
// policy's. If its weights fit in the gradients' memory, they are there only while it scores, when
// no gradients are needed. At other times they are in host memory, page-locked if there is CUDA.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "rl/checkpoint/run_checkpoint.h"
#include "rl/checkpoint/start_weights.h"
#include "rl/training/stages.h"
#include "rl/training/training_run.h"
#include "slimexx/base/error.h"
#include "slimexx/observe/span.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::rl {
namespace {

int64_t weight_bytes(const Session& session, const LoadedModel& reference) {
  return model::ParameterStore::weight_bytes(reference.held_parameters(), session.request.device);
}

// A parameter whose parts are all held and saved by other ranks, such as the last stage's copy of
// the embedding for a trained MTP layer.
bool is_copy(const model::ParameterInfo& info) {
  return std::ranges::none_of(info.parts, &model::HfPart::is_counted);
}

// The first parameter of `some` that is missing in `others` or has another shape there; null: none.
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

// Checks that policy and reference can take each other's weights. `why` they need to.
void check_same_parameters(const RunConfig& config, const TrainerSide& trainer_side,
                           const std::string& why) {
  const auto& reference = trainer_side.reference.held_parameters();
  const auto& policy = trainer_side.policy.store->infos();
  const model::ParameterInfo* odd = find_without_match(reference, policy);
  if (odd == nullptr) odd = find_without_match(policy, reference);
  if (odd == nullptr) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{}, and policy and reference have not the same {}", why, odd->name),
              "use a reference of the policy's architecture", config.model.ref_load);
}

// Copies a transient reference back to host memory.
void keep_copy(const Session& session, TrainerSide& trainer_side) {
  if (!trainer_side.reference_is_transient) return;
  tensor::StagingBuffer& copy = trainer_side.reference_copy;
  tensor::download(tensor::compute_stream(session.request.device), copy.data(),
                   trainer_side.policy.store->gradient_memory().rows(0, copy.size_bytes()));
  take_reference_out(trainer_side);
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
  trainer_side.reference_is_saved = config.rl.ref_update_interval.has_value();
  if (trainer_side.reference_is_saved)
    check_same_parameters(config, trainer_side, "rl.ref_update_interval is set");
}

void keep_reference(const Session& session, TrainerSide& trainer_side) {
  if (!trainer_side.reference_is_transient) return;
  observe::Span span("load_model");
  LoadedModel& reference = trainer_side.reference;
  trainer_side.reference_copy = tensor::StagingBuffer(
      session.request.device, weight_bytes(session, reference), "reference model");
  reference.store =
      load_start_weights(session, reference, trainer_side.policy.store->gradient_memory());
  keep_copy(session, trainer_side);
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

void update_reference(const Session& session, TrainerSide& trainer_side, Progress& progress) {
  const auto interval = session.config.rl.ref_update_interval;
  if (!interval || progress.next_rollout % *interval != 0) return;
  observe::Span span("update_reference");
  progress.whole_state.reset();
  bring_reference_in(session, trainer_side);
  const model::ParameterStore& policy = *trainer_side.policy.store;
  const model::ParameterStore& reference = *trainer_side.reference.store;
  tensor::Arena no_scratch(session.request.device, 0, "copies");
  for (const model::ParameterInfo& info : reference.infos())
    ops::copy(ops::compute_context(no_scratch), reference.weight(info.id),
              policy.weight(policy.find(info.name)));
  keep_copy(session, trainer_side);
}

void restore_reference(const Session& session, const io::Checkpoint& checkpoint,
                       TrainerSide& trainer_side) {
  if (!wants_reference(session.config) || !has_reference(checkpoint)) return;
  check_same_parameters(session.config, trainer_side,
                        "the checkpoint's reference followed the policy");
  bring_reference_in(session, trainer_side);
  load_reference(checkpoint, *trainer_side.reference.store);
  trainer_side.reference_is_saved = true;
  keep_copy(session, trainer_side);
}

}  // namespace slimexx::rl

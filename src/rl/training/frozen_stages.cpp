// The frozen models of a run, from its start to its checkpoints. All functions are collective over
// the ranks that train.
#include <fmt/format.h>

#include "rl/assembly/frozen_model.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "rl/checkpoint/start_weights.h"
#include "rl/training/stages.h"
#include "rl/training/training_run.h"
#include "slimexx/base/error.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

// A frozen model must fit the policy's samples, which it scores.
void check_fit(const FrozenModelOptions& options, const model::ModelSpec& spec,
               const model::ModelSpec& policy, int64_t longest) {
  if (spec.vocab_size != policy.vocab_size)
    throw Error(ErrorCode::kUsage,
                fmt::format("the vocabulary of the {} has {} tokens, that of the policy {}",
                            options.name, spec.vocab_size, policy.vocab_size),
                fmt::format("use a {} with the same tokenizer", options.name), options.folder);
  if (longest > spec.max_positions)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("the longest prompt and a full response are {} tokens, but the {} supports {} "
                    "positions",
                    longest, options.name, spec.max_positions),
        fmt::format("lower rollout.rollout_max_response_len, or use a {} with enough positions",
                    options.name),
        options.folder + "/config.json: max_position_embeddings");
}

}  // namespace

void build_frozen_models(const Session& session, int64_t longest, TrainerSide& trainer_side) {
  const LoadedModel& policy = trainer_side.policy;
  for (const FrozenModelOptions& options : session.config.frozen_models) {
    LoadedModel described = describe_start(session, options.folder, Fp8Use::kScoring);
    check_fit(options, described.spec, policy.spec, longest);
    FrozenModel& frozen = trainer_side.frozen.emplace_back(
        place_frozen_model(session.rank_inputs(), options, std::move(described),
                           trainer_side.decoders, *policy.store));
    if (!frozen.is_transient) {
      frozen.model = load_start(session, options.folder, false);
      encode_weights(*frozen.model.store, session.request.device);
    }
    if (frozen.is_saved)
      check_same_parameters(frozen, *policy.store, "rl.ref_update_interval is set");
  }
}

void keep_frozen_models(const Session& session, TrainerSide& trainer_side) {
  const tensor::Device device = session.request.device;
  const model::ParameterStore& policy = *trainer_side.policy.store;
  for (FrozenModel& frozen : trainer_side.frozen) {
    if (!frozen.is_transient) continue;
    observe::Span span("load_model");
    frozen.copy = tensor::StagingBuffer(
        device, model::ParameterStore::weight_bytes(frozen.model.held_parameters(), device),
        frozen.options.name + " model");
    frozen.model.store = load_start_weights(session, frozen.model, policy.gradient_memory());
    keep_copy(device, frozen, policy, *trainer_side.trainer);
  }
}

void restore_reference(const Session& session, const io::Checkpoint& checkpoint,
                       TrainerSide& trainer_side) {
  FrozenModel* reference = find_frozen(trainer_side.frozen, kReference);
  if (reference == nullptr || !has_reference(checkpoint)) return;
  const model::ParameterStore& policy = *trainer_side.policy.store;
  check_same_parameters(*reference, policy,
                        "the checkpoint's reference was updated from the policy");
  bring_in(session.request.device, *reference, policy);
  load_reference(checkpoint, *reference->model.store);
  encode_weights(*reference->model.store, session.request.device);
  reference->is_saved = true;
  keep_copy(session.request.device, *reference, policy, *trainer_side.trainer);
}

void update_reference(const Session& session, TrainerSide& trainer_side, Progress& progress) {
  const auto interval = session.config.rl.ref_update_interval;
  if (!interval || progress.next_rollout % *interval != 0) return;
  observe::Span span("update_reference");
  progress.whole_state.reset();
  copy_policy(session.request.device, *find_frozen(trainer_side.frozen, kReference),
              *trainer_side.policy.store, *trainer_side.trainer);
}

std::vector<train::TokenScores> score_frozen(const Session& session, TrainerSide& trainer_side,
                                             FrozenModel& frozen, std::span<const Sample> samples) {
  bring_in(session.request.device, frozen, *trainer_side.policy.store);
  auto scores = trainer_side.trainer->compute_log_probs(borrow(frozen.decoders),
                                                        *frozen.model.store, samples);
  take_out(frozen, *trainer_side.trainer);
  return scores;
}

}  // namespace slimexx::rl

// Building a run: models, data, engine, trainer, resume.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "rl/assembly/trainer_part.h"
#include "rl/checkpoint/resume_check.h"
#include "rl/checkpoint/start_weights.h"
#include "rl/config/positions.h"
#include "rl/config/speculation.h"
#include "rl/training/training_run.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/make_once.h"
#include "slimexx/dist/world.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace {

void require(bool condition, const std::string& what, const std::string& hint,
             const std::string& where) {
  if (!condition) throw Error(ErrorCode::kUsage, what, hint, where);
}

// Tokens of the longest training prompt plus a full response; 0 without prompts.
int64_t longest_rollout(const RunConfig& config, const RolloutSide& rollout_side) {
  if (!rollout_side.prompts) return 0;
  return rollout_side.prompts->longest() + config.rollout.rollout_max_response_len;
}

// Tokens of the longest sequence that the policy may get.
int64_t longest_sequence(const RunConfig& config, const RolloutSide& rollout_side,
                         const model::ModelSpec& policy) {
  if (!needs_engine(config)) return policy.max_positions;
  if (rollout_side.prompts)
    check_positions(*rollout_side.prompts, config.rollout.rollout_max_response_len,
                    policy.max_positions,
                    {.file = config.data.prompt_data,
                     .response = "rollout.rollout_max_response_len",
                     .prompt = "rollout.rollout_max_prompt_len"});
  check_positions(rollout_side.eval_sets, config, policy.max_positions);
  return rollout_side.prompts ? longest_generated(config, rollout_side) : policy.max_positions;
}

// Settings of routers have no effect on a model without routers, or without router biases.
void check_routers(const train::TrainOptions& options, const LoadedModel& policy) {
  bool has_router = false, has_bias = false;
  for (const model::LayerSpec& layer : policy.spec.layers) {
    has_router |= model::router(layer) != nullptr;
    has_bias |= model::has_router_bias(layer);
  }
  const auto refuse = [&](const char* key, double value, const char* what) {
    throw Error(ErrorCode::kUsage,
                fmt::format("train.{} is {}, but {} has no {}", key, value, policy.directory, what),
                "set it to 0, or leave it out", fmt::format("train.{}", key));
  };
  if (options.moe_router_bias_update_rate > 0 && !has_bias)
    refuse("moe_router_bias_update_rate", options.moe_router_bias_update_rate,
           "router with a correction bias");
  if (options.moe_aux_loss_coeff > 0 && !has_router)
    refuse("moe_aux_loss_coeff", options.moe_aux_loss_coeff, "experts");
  if (options.moe_z_loss_coeff > 0 && !has_router)
    refuse("moe_z_loss_coeff", options.moe_z_loss_coeff, "experts");
}

// Warns that the decay now ends at another step than the checkpoint says.
void report_moved_decay(const train::OptimizerOptions& o, const Progress& progress,
                        int64_t end_now) {
  const int64_t step = progress.optimizer_steps - progress.skipped_steps;
  log_warn(
      "the learning rate now decays until optimizer step {}; before the resume the end was step "
      "{}. The next step's rate is {:.4g} instead of {:.4g}; set optimizer.lr_decay_iters to fix "
      "the end",
      end_now, progress.decay_steps, train::learning_rate(o, step, end_now),
      train::learning_rate(o, step, progress.decay_steps));
}

// Sets the end of the schedule: lr_decay_iters, otherwise the last step of the run; 0 for dumps
// with a constant rate, since their number of steps is unknown.
void settle_decay(const Session& session, Progress& progress) {
  const train::OptimizerOptions& o = session.config.optimizer;
  const int64_t steps = session.config.num_steps_per_rollout;
  const int64_t left = std::max<int64_t>(0, progress.num_rollouts - progress.next_rollout) * steps;
  const int64_t end = o.lr_decay_iters.value_or(steps == 0 ? 0 : progress.optimizer_steps + left);
  const int64_t decay = o.lr_wsd_decay_iters.value_or(0);
  require(o.lr_decay_style != "WSD" || o.lr_decay_iters || decay <= end,
          fmt::format("the learning rate decays over {} optimizer steps, but the run has {}", decay,
                      end),
          "lower it, or set optimizer.lr_decay_iters", "optimizer.lr_wsd_decay_iters");
  // Older checkpoints do not say where the decay was to end.
  const bool is_known = progress.decay_steps > 0;
  const bool matters = o.lr_decay_style != "constant" || o.lr_warmup_fraction;
  if (is_known && matters && left > 0 && end != progress.decay_steps && session.is_root())
    report_moved_decay(o, progress, end);
  progress.decay_steps = end;
}

void load_policy(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side) {
  const RolloutOptions& rollout = session.config.rollout;
  const std::string& folder = session.config.model.hf_checkpoint;
  // Refuse bad sizes before the weights are read.
  if (session.engine_shape.num_ranks > 1 || speculates(rollout)) {
    const LoadedModel described = describe_start(session, folder, Fp8Use::kPolicy);
    make_engine_shape(rollout, session.model_ranks.grid.sizes(), session.roles.num_generators,
                      &described.spec);
    check_speculation(rollout, described.spec, folder);
  }
  trainer_side.policy =
      load_start(session, session.config.model.hf_checkpoint, true, &session.config.train);
  check_routers(session.config.train, trainer_side.policy);
  if (session.is_root()) log_fp8(trainer_side.policy.spec);
  const LoadedModel& policy = trainer_side.policy;
  rollout_side.stop_token_ids = join_stop_tokens(policy.eos_token_ids, policy.spec.vocab_size,
                                                 rollout.rollout_stop_token_ids);
  rollout_side.eval_stop_token_ids = join_stop_tokens(policy.eos_token_ids, policy.spec.vocab_size,
                                                      session.config.eval.eval_stop_token_ids,
                                                      eval_stop_tokens_key(session.config));
}

// Called on ranks that have graders.
void try_labels_of(const RunConfig& config, RolloutSide& rollout_side) {
  const auto try_on = [&](const data::PromptSet& prompts, const reward::RewardOptions& options) {
    rollout_side.label_trials.push_back(try_labels(prompts, options));
    check_labels(rollout_side.label_trials.back(), options);
  };
  if (rollout_side.prompts) try_on(*rollout_side.prompts, config.reward);
  if (config.eval.eval_interval == 0) return;
  for (const EvalSet& set : rollout_side.eval_sets)
    try_on(*set.prompts, eval_reward_options(config));
}

void load_data(const Session& session, const LoadedModel& policy, RolloutSide& rollout_side) {
  const PhaseScope phase("load_data");
  const std::string& dump = session.config.debug.load_rollout;
  const bool from_dump = !dump.empty();
  require(!from_dump || path_exists(dump), "there is no such file or folder",
          "set debug.load_rollout to a file or folder of rollout dumps", dump);
  if (!from_dump || needs_engine(session.config)) {
    rollout_side.text = load_text_side(session.config.model.hf_checkpoint);
    require(rollout_side.text.tokenizer != nullptr, "the checkpoint has no tokenizer.json",
            "add one to the folder", session.config.model.hf_checkpoint);
    require(!session.config.data.apply_chat_template || rollout_side.text.chat_template != nullptr,
            "data.apply_chat_template is true, but the checkpoint has no chat template",
            "add chat_template.jinja to the folder, or turn it off",
            session.config.model.hf_checkpoint);
    require(rollout_side.text.tokenizer->vocab_size() <= policy.spec.vocab_size,
            fmt::format("the tokenizer has {} tokens, but the model has {}",
                        rollout_side.text.tokenizer->vocab_size(), policy.spec.vocab_size),
            "use the tokenizer that belongs to the model", session.config.model.hf_checkpoint);
  }
  rollout_side.eval_sets = load_eval_sets(session.config, rollout_side.text.tokenizer.get(),
                                          rollout_side.text.chat_template.get());
  if (from_dump) {
    rollout_side.source = make_dump_source(session.config);
  } else if (session.config.is_sft()) {
    rollout_side.source = make_sft_source(
        session.config,
        load_examples(session.config, rollout_side.text, rollout_side.stop_token_ids),
        policy.spec.max_positions);
  } else {
    rollout_side.prompts = std::make_shared<const data::PromptSet>(
        data::PromptSet::load(prompt_options(session.config), rollout_side.text.tokenizer.get(),
                              rollout_side.text.chat_template.get()));
  }
  try_labels_of(session.config, rollout_side);
}

void build_generator(const Session& session, const EngineGrid& engine_grid,
                     const tensor::Tensor& cache_memory, RolloutSide& rollout_side) {
  if (!session.generates()) {
    rollout_side.generator = std::make_unique<Generator>(session.communicator);
    return;
  }
  const text::Tokenizer* tokenizer = rollout_side.text.tokenizer.get();
  rollout::EngineOptions options = engine_options(session, rollout_side);
  options.decode_rates = engine_grid.decode_rates;
  rollout_side.engine = std::make_unique<rollout::Engine>(
      *rollout_side.model.decoder, rollout_side.model.weights, session.request.device, options,
      [tokenizer](int32_t id) -> const std::string& { return tokenizer->token_bytes(id); },
      tokenizer->vocab_size(), cache_memory, engine_grid.groups());
  rollout_side.generator =
      std::make_unique<Generator>(*rollout_side.engine, engine_grid.host_groups(), tokenizer,
                                  session.communicator, session.roles.first_generator());
}

// Takes the rest of the device's memory for engine and trainer. `world` has all ranks.
void build_engine(const Session& session, const dist::ProcessGrid& world,
                  const EngineGrid& engine_grid, TrainerSide& trainer_side, SharedMemory& memory,
                  RolloutSide& rollout_side) {
  if (needs_engine(session.config))
    rollout_side.model = make_engine_model(
        session.rank_inputs(), trainer_side.policy.spec, trainer_side.decoders,
        *trainer_side.policy.store, rollout_side.max_positions, [&](const model::ModelSpec& spec) {
          return *dist::make_once(session.communicator,
                                  [&] { return make_engine_layout(session.rank_inputs(), spec); });
        });
  const tensor::Tensor cache_memory =
      take_pool(session, trainer_side, rollout_side, engine_grid.groups(), memory);
  if (!needs_engine(session.config)) return;
  build_generator(session, engine_grid, cache_memory, rollout_side);
  const LoadedModel& policy = trainer_side.policy;
  const EngineModel& model = rollout_side.model;
  rollout_side.hand_over =
      make_hand_over(policy.layout, *policy.store, model,
                     plan_hand_over(policy.layout, model.own_store ? model.layout : policy.layout,
                                    session.communicator),
                     world.groups().world, session.request.device);
  if (rollout_side.prompts) rollout_side.grader = reward::make_grader(session.config.reward);
  if (session.config.eval.eval_interval > 0)
    rollout_side.eval_grader = reward::make_grader(eval_reward_options(session.config));
  if (rollout_side.prompts)
    rollout_side.source =
        make_generated_source(session.config, rollout_side.prompts, *rollout_side.generator,
                              *rollout_side.grader, rollout_side.stop_token_ids);
}

void build_trainer(const Session& session, const dist::ProcessGrid& grid,
                   TrainerSide& trainer_side) {
  trainer_side.trainer = make_trainer(session.rank_inputs(), trainer_side.decoders,
                                      *trainer_side.policy.store, session.peers, grid.groups());
  trainer_side.trainer->encode_weights();  // after the optimizer has copied its master weights
  trainer_side.checkpoints = std::make_unique<CheckpointWriter>(
      CheckpointWriterOptions{.root = session.checkpoint_root,
                              .side_files_from = session.config.model.hf_checkpoint,
                              .keep_last = session.config.checkpoint.keep_last,
                              .async = session.config.checkpoint.async_save},
      session.peers);
}

void restore_progress(const io::Checkpoint& checkpoint, SampleSource& source, Progress& progress) {
  const Json& state = checkpoint.state();
  const std::string where = checkpoint.directory() + "/manifest.json";
  progress.next_rollout = io::read_counter(state, "next_rollout", where);
  progress.optimizer_steps = io::read_counter(state, "optimizer_steps", where);
  progress.skipped_steps = io::read_counter(state, "skipped_steps", where);
  if (state.contains("skipped_in_a_row"))  // older checkpoints lack it
    progress.skipped_in_a_row = io::read_counter(state, "skipped_in_a_row", where);
  if (state.contains("decay_steps"))
    progress.decay_steps = io::read_counter(state, "decay_steps", where);
  if (const auto due = state.find("evaluation_is_due"); due != state.end())
    progress.evaluation_is_due = due->is_boolean() && due->get<bool>();
  if (!state.contains("data"))
    throw Error(ErrorCode::kInput, "key \"data\" of the state is missing",
                "the checkpoint is damaged: load another one", where);
  try {
    source.restore(state.at("data"));
  } catch (const Error& e) {
    throw e.with_where(where);
  }
}

void restore_training(const Session& session, const io::Checkpoint& checkpoint,
                      TrainerSide& trainer_side) {
  dist::run_agreed(session.peers, [&] { check_same_fp8(checkpoint, trainer_side.policy.spec); });
  train::ShardedAdamW& optimizer = trainer_side.trainer->optimizer();
  dist::run_agreed(session.peers, [&] {
    check_frozen_weights(checkpoint, *trainer_side.policy.store, optimizer);
  });
  load_training_state(checkpoint, *trainer_side.policy.store, optimizer);
  restore_reference(session, checkpoint, trainer_side);
  trainer_side.trainer->publish_embedding();
  trainer_side.trainer->encode_weights();
  optimizer.set_num_steps(io::read_counter(checkpoint.state(), "adam_steps",
                                           checkpoint.directory() + "/manifest.json"));
}

// The newest earlier checkpoint whose files have the right hashes; empty: none.
std::string find_whole_before(const std::string& checkpoint) {
  const std::filesystem::path path = std::filesystem::absolute(checkpoint).lexically_normal();
  std::vector<std::string> earlier;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    const std::string own = path.filename().string();
    // Compares step numbers: longer names have larger numbers.
    const bool is_before = std::pair(name.size(), name) < std::pair(own.size(), own);
    if (name.starts_with("step_") && is_before) earlier.push_back(entry.path().string());
  }
  std::ranges::sort(earlier, std::greater<>(),
                    [](const std::string& name) { return std::pair(name.size(), name); });
  for (const std::string& folder : earlier) {
    try {
      io::Checkpoint::open(folder).verify_hashes();
      return folder;
    } catch (const Error&) {  // try an earlier one
    }
  }
  return "";
}

void verify_files(const io::Checkpoint& checkpoint, const std::string& path) {
  try {
    checkpoint.verify_hashes();
  } catch (const Error& error) {
    const std::string whole = find_whole_before(path);
    if (whole.empty()) throw;
    throw Error(error.code(), error.message(),
                fmt::format("an earlier checkpoint is complete: --resume {}", whole),
                error.where());
  }
}

// Loads the training state of a checkpoint, or only its weights (RunStart::use).
void resume(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side,
            Progress& progress) {
  const std::string& path = session.request.start.checkpoint;
  observe::Span span("load_model");
  const io::Checkpoint checkpoint = io::Checkpoint::open(path);
  verify_files(checkpoint, path);
  const CheckpointUse use = session.request.start.use;
  if (checkpoint.state().contains("next_rollout") && use != CheckpointUse::kWeights) {
    check_same_model(path, session.config.model.hf_checkpoint);
    if (session.is_root())
      compare_settings(find_earlier_settings(session.request.start), session.config.resolved_yaml,
                       needs_reference(session.config) && has_reference(checkpoint));
    if (session.trains()) restore_training(session, checkpoint, trainer_side);
    restore_progress(checkpoint, *rollout_side.source, progress);
    if (session.trains() && session.request.start.is_own)
      trainer_side.checkpoints->note_loaded(progress.next_rollout);
    if (session.is_root())
      log_info("continuing from {} at rollout {}", path, progress.next_rollout);
  } else {
    require(use != CheckpointUse::kState, "this checkpoint holds weights only, no training state",
            "set model.load to start from its weights", path);
    if (session.trains()) {
      model::load_checkpoint_weights(*trainer_side.policy.store, checkpoint);
      trainer_side.trainer->optimizer().take_master();
      trainer_side.trainer->publish_embedding();
      trainer_side.trainer->encode_weights();
    }
    if (session.is_root()) log_info("the weights come from {}", path);
  }
}

}  // namespace

int64_t longest_trained(const RunConfig& config, const RolloutSide& rollout_side,
                        const model::ModelSpec& policy) {
  if (rollout_side.prompts) return longest_rollout(config, rollout_side);
  return rollout_side.source->longest_sequence().value_or(policy.max_positions);
}

int64_t longest_generated(const RunConfig& config, const RolloutSide& rollout_side) {
  return std::max(longest_rollout(config, rollout_side),
                  longest_evaluated(rollout_side.eval_sets, config));
}

rollout::EngineOptions engine_options(const Session& session, const RolloutSide& rollout_side) {
  rollout::EngineOptions options =
      engine_options(session.config.rollout, longest_generated(session.config, rollout_side));
  options.records_steps = !session.world.are_threads();
  return options;
}

TrainingRun::~TrainingRun() {
  if (trainer_side.trainer) trainer_side.trainer->memory().leave_ranks();
  if (rollout_side.engine) rollout_side.engine->leave_ranks();
}

TrainingRun::TrainingRun(TrainRequest request, dist::World& all_ranks)
    : session(std::move(request), all_ranks) {
  const RunConfig& config = session.config;
  load_policy(session, trainer_side, rollout_side);
  const model::ModelSpec& spec = trainer_side.policy.spec;
  if (!config.checkpoint.save_hf.empty() && session.is_root() && !session.request.dry_run)
    try_export(spec, config.model.hf_checkpoint, config.checkpoint.save_hf);
  load_data(session, trainer_side.policy, rollout_side);
  rollout_side.max_positions = longest_sequence(config, rollout_side, spec);
  const tensor::Device device = session.request.device;
  if (session.trains()) {
    trainer_side.decoders =
        make_policy_decoders(session.rank_inputs(), spec, rollout_side.max_positions);
    // The samples of a dump are not known yet: score_reference checks them.
    build_frozen_models(session, longest_rollout(config, rollout_side), trainer_side);
    grid = std::make_unique<dist::ProcessGrid>(session.peers, session.model_ranks.grid.sizes(),
                                               device);
    build_trainer(session, *grid, trainer_side);
    keep_frozen_models(session, trainer_side);
  }
  if (session.roles.are_apart)
    world = std::make_unique<dist::ProcessGrid>(session.communicator, dist::GridSizes{}, device);
  if (needs_engine(config)) engine_grid = make_engine_grid(session);
  build_engine(session, world ? *world : *grid, engine_grid, trainer_side, memory, rollout_side);
  if (!session.request.start.checkpoint.empty())
    resume(session, trainer_side, rollout_side, progress);
  progress.num_rollouts = rollout_side.source->num_rollouts(progress.next_rollout);
  settle_decay(session, progress);
  session.communicator.barrier();  // all ranks have valid inputs: the run folder may be filled
  open_run_folder(*this);
}

}  // namespace slimexx::rl

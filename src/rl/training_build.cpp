// Building a run: models, data, engine, trainer, resume.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "resume_check.h"
#include "run_summary.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/world.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
#include "slimexx/rl/export.h"
#include "training_run.h"

namespace slimexx::rl {
namespace {

data::SftOptions sft_options(const RunConfig& config, const std::vector<int32_t>& eos) {
  const data::PromptOptions prompts = prompt_options(config);
  data::SftOptions o;
  o.prompt_data = prompts.prompt_data;
  o.messages_key = config.data.messages_key;
  o.input_key = config.data.input_key;
  o.response_key = config.data.response_key;
  o.tool_key = config.data.tool_key;
  o.apply_chat_template = config.data.apply_chat_template;
  o.apply_chat_template_kwargs = prompts.apply_chat_template_kwargs;
  o.eos_ids = eos;  // a reply ends where generation will stop
  return o;
}

void require(bool condition, const std::string& what, const std::string& hint,
             const std::string& where) {
  if (!condition) throw Error(ErrorCode::kUsage, what, hint, where);
}

// Tokens of the longest prompt of training and a full response; 0 without prompts.
int64_t longest_rollout(const RunConfig& config, const RolloutSide& rollout_side) {
  if (!rollout_side.prompts) return 0;
  return rollout_side.prompts->longest() + config.rollout.rollout_max_response_len;
}

// Of the tokens that the policy may see.
int64_t longest_sequence(const RunConfig& config, const RolloutSide& rollout_side,
                         const model::ModelSpec& policy) {
  if (!wants_engine(config)) return policy.max_positions;
  const int64_t longest = longest_generated(config, rollout_side);
  require(longest <= policy.max_positions,
          fmt::format(
              "the longest prompt and a full response are {} tokens, the model knows {} positions",
              longest, policy.max_positions),
          "lower rollout.rollout_max_response_len, or drop long prompts by "
          "rollout.rollout_max_prompt_len",
          "max_position_embeddings");
  return rollout_side.prompts ? longest : policy.max_positions;
}

// Settings of routers mean nothing to a model that has none, or none with a bias.
void check_routers(const train::TrainOptions& options, const LoadedModel& policy) {
  bool has_router = false, has_bias = false;
  for (const model::LayerSpec& layer : policy.spec.layers) {
    const auto* moe = std::get_if<model::MoeMlpSpec>(&layer.mlp);
    has_router |= moe != nullptr;
    has_bias |= moe != nullptr && moe->has_correction_bias;
  }
  const auto refuse = [&](const char* key, double value, const char* what) {
    throw Error(ErrorCode::kUsage,
                fmt::format("train.{} is {}, and {} has no {}", key, value, policy.directory, what),
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

void load_policy(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side) {
  if (session.engine_shape.num_ranks > 1) {  // refused before the weights are read
    const LoadedModel described = describe_model(session.config.model.hf_checkpoint);
    make_engine_shape(session.config.rollout, session.model_ranks.grid.sizes(),
                      session.world.size(), &described.spec);
  }
  const int64_t trained_mtp = session.config.train.num_trained_mtp();
  trainer_side.policy =
      session.config.debug.random_weights
          ? make_random_model(session.config.model.hf_checkpoint, session.request.device, true,
                              static_cast<uint64_t>(session.config.data.seed), &session.model_ranks,
                              trained_mtp)
          : load_model(session.config.model.hf_checkpoint, session.request.device, true,
                       session.is_root(), &session.model_ranks, trained_mtp);
  check_routers(session.config.train, trainer_side.policy);
  rollout_side.stop_token_ids = trainer_side.policy.eos_token_ids;
  for (int64_t id : session.config.rollout.rollout_stop_token_ids)
    rollout_side.stop_token_ids.push_back(static_cast<int32_t>(id));
}

void load_data(const Session& session, const LoadedModel& policy, RolloutSide& rollout_side) {
  const PhaseScope phase("load_data");
  const bool from_dump = !session.config.debug.load_rollout.empty();
  if (!from_dump || wants_engine(session.config)) {
    rollout_side.text = load_text_side(session.config.model.hf_checkpoint);
    require(rollout_side.text.tokenizer != nullptr, "the checkpoint has no tokenizer.json",
            "add one to the folder", session.config.model.hf_checkpoint);
    require(!session.config.data.apply_chat_template || rollout_side.text.chat_template != nullptr,
            "data.apply_chat_template is true, and the checkpoint has no chat template",
            "add chat_template.jinja to the folder, or turn it off",
            session.config.model.hf_checkpoint);
    require(rollout_side.text.tokenizer->vocab_size() <= policy.spec.vocab_size,
            fmt::format("the tokenizer has {} tokens, the model {}",
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
        data::SftSet::load(sft_options(session.config, rollout_side.stop_token_ids),
                           *rollout_side.text.tokenizer, rollout_side.text.chat_template.get()));
  } else {
    rollout_side.prompts = std::make_shared<const data::PromptSet>(
        data::PromptSet::load(prompt_options(session.config), rollout_side.text.tokenizer.get(),
                              rollout_side.text.chat_template.get()));
  }
}

// Takes what is left of the device's memory, for the engine and the trainer.
void build_engine(const Session& session, const dist::ProcessGrid& grid,
                  const EngineGrid& engine_grid, TrainerSide& trainer_side, SharedMemory& memory,
                  RolloutSide& rollout_side) {
  if (wants_engine(session.config)) rollout_side.model = make_engine_model(session, trainer_side);
  const tensor::Tensor cache_memory =
      take_pool(session, trainer_side, rollout_side, engine_grid.groups(), memory);
  if (!wants_engine(session.config)) return;
  const text::Tokenizer* tokenizer = rollout_side.text.tokenizer.get();
  rollout_side.engine = std::make_unique<rollout::Engine>(
      *rollout_side.model.decoder, rollout_side.model.weights, session.request.device,
      engine_options(session, rollout_side),
      [tokenizer](int32_t id) -> const std::string& { return tokenizer->token_bytes(id); },
      tokenizer->vocab_size(), cache_memory, engine_grid.groups());
  const LoadedModel& policy = trainer_side.policy;
  rollout_side.hand_over = std::make_unique<WeightHandOver>(
      HeldWeights{policy.layout, *policy.store},
      HeldWeights{rollout_side.model.layout, *rollout_side.model.store}, grid.groups().world,
      session.request.device);
  rollout_side.generator = std::make_unique<Generator>(
      *rollout_side.engine, engine_grid.host_groups(), tokenizer, session.communicator);
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
  trainer_side.trainer = std::make_unique<train::Trainer>(
      borrow(trainer_side.decoders), *trainer_side.policy.store, session.communicator,
      grid.groups(), session.config.train, session.config.optimizer,
      static_cast<float>(session.config.rollout.rollout_temperature), session.request.device);
  trainer_side.checkpoints = std::make_unique<CheckpointWriter>(
      CheckpointWriterOptions{.root = session.checkpoint_root,
                              .side_files_from = session.config.model.hf_checkpoint,
                              .keep_last = session.config.checkpoint.keep_last,
                              .async = session.config.checkpoint.async_save},
      session.communicator);
}

void restore_training(const io::Checkpoint& checkpoint, TrainerSide& trainer_side,
                      SampleSource& source, Progress& progress) {
  const Json& state = checkpoint.state();
  const std::string where = checkpoint.directory() + "/manifest.json";
  load_training_state(checkpoint, *trainer_side.policy.store, trainer_side.trainer->optimizer());
  trainer_side.trainer->publish_embedding();
  progress.next_rollout = io::read_counter(state, "next_rollout", where);
  progress.optimizer_steps = io::read_counter(state, "optimizer_steps", where);
  progress.skipped_steps = io::read_counter(state, "skipped_steps", where);
  if (state.contains("skipped_in_a_row"))  // not in older checkpoints
    progress.skipped_in_a_row = io::read_counter(state, "skipped_in_a_row", where);
  trainer_side.trainer->optimizer().set_num_steps(io::read_counter(state, "adam_steps", where));
  if (!state.contains("data"))
    throw Error(ErrorCode::kInput, "key \"data\" of the state is missing",
                "the checkpoint is damaged: load another one", where);
  try {
    source.restore(state.at("data"));
  } catch (const Error& e) {
    throw e.with_where(where);
  }
}

// The training state of a checkpoint, or of one that holds weights only (convert-hf) the weights.
void resume(const Session& session, TrainerSide& trainer_side, RolloutSide& rollout_side,
            Progress& progress) {
  const std::string& path = session.request.start.checkpoint;
  observe::Span span("load_model");
  const io::Checkpoint checkpoint = io::Checkpoint::open(path);
  checkpoint.verify_hashes();
  if (checkpoint.state().contains("next_rollout")) {
    check_same_model(path, session.config.model.hf_checkpoint);
    if (session.is_root())
      compare_settings(find_earlier_settings(session.request.start), session.config.resolved_yaml);
    dist::run_agreed(session.communicator, [&] {
      check_frozen_weights(checkpoint, *trainer_side.policy.store,
                           trainer_side.trainer->optimizer());
    });
    restore_training(checkpoint, trainer_side, *rollout_side.source, progress);
    if (session.is_root())
      log_info("continuing from {} at rollout {}", path, progress.next_rollout);
  } else {
    require(!session.request.start.wants_training,
            "this checkpoint holds weights only, no training state",
            "start from its weights by model.load", path);
    model::load_checkpoint_weights(*trainer_side.policy.store, checkpoint);
    trainer_side.trainer->optimizer().take_master();
    trainer_side.trainer->publish_embedding();
    if (session.is_root()) log_info("the weights are those of {}", path);
  }
}

// How a GPU gets the decode steps of engines of several ranks.
std::string launched(const TrainingRun& run) {
  const tensor::Device device = run.session.request.device;
  if (device.is_cpu() || !wants_engine(run.session.config)) return "";
  return rollout::records_steps(engine_options(run.session, run.rollout_side), device,
                                run.engine_grid.groups())
             ? "; decode steps are recorded as graphs"
             : "; decode steps are launched kernel by kernel, not as graphs";
}

std::string banner(const TrainingRun& run) {
  const auto& [progress, session, memory, trainer_side, rollout_side, grid, engine_grid] = run;
  const auto& spec = trainer_side.policy.spec;
  std::string text = fmt::format(
      "slimexx {}{}\n",
      session.config.is_sft() ? "supervised fine-tuning" : session.config.rl.advantage_estimator,
      session.request.dry_run ? " (dry run)" : "");
  text += fmt::format("  model     {} ({}), {} parameters, {} layers, hidden {}, vocabulary {}\n",
                      session.config.model.hf_checkpoint, spec.architecture,
                      format_count(static_cast<double>(trainer_side.policy.store->num_elements())),
                      spec.num_layers(), spec.hidden_size, spec.vocab_size);
  if (const int64_t trained = spec.num_trained_mtp(); trained > 0)
    text += fmt::format("  mtp       the first {} of {} prediction layers trained beside it\n",
                        trained, spec.mtp.size());
  text += fmt::format("  ranks     {} {} {} threads on {}\n", session.world.size(),
                      session.world.are_threads() ? "of one process, which share" : "x",
                      num_threads(), tensor::to_string(session.request.device));
  if (const EngineShape& engines = session.engine_shape; engines.num_ranks > 1)
    text += fmt::format("  engines   {} of {} ranks: {} attention group{} of TP {}, EP {}{}\n",
                        engines.num_engines, engines.num_ranks, engines.num_attention_groups(),
                        engines.num_attention_groups() == 1 ? "" : "s", engines.sizes.tp,
                        engines.sizes.ep, launched(run));
  if (rollout_side.prompts) {
    text += fmt::format(
        "  prompts   {} from {}{}\n", rollout_side.prompts->size(), session.config.data.prompt_data,
        rollout_side.prompts->num_dropped() > 0
            ? fmt::format(" ({} too long, dropped)", rollout_side.prompts->num_dropped())
            : "");
  }
  text += fmt::format("  batch     {}\n", describe_batch(session.config));
  text += fmt::format("  rollouts  {} of {} done\n", progress.next_rollout, progress.num_rollouts);
  text += fmt::format("  memory    of {} on {}\n{}",
                      session.world.are_threads() ? "all ranks of this process" : "one rank",
                      tensor::to_string(session.request.device), memory_table(run));
  text += fmt::format("  run       {}\n", session.config.observe.run_dir);
  if (rollout_side.grader) text += fmt::format("  reward    {}\n", session.config.reward.rm_type);
  text += fmt::format("  resume    {}", session.resume_command());
  return text;
}

// From here on the run leaves traces on disk; a start that failed, or was a trial, has left none.
void open_run_folder(TrainingRun& run) {
  Session& session = run.session;
  const Progress& progress = run.progress;
  if (!session.request.dry_run) {
    if (session.is_root() && session.request.start.sets_rows_aside)
      set_rows_aside(session.config.observe.run_dir);
    make_directories(session.path("logs"));
    open_log_file(session.path(fmt::format("logs/rank_{:03}.log", session.world.rank())));
  }
  session.log = std::make_unique<observe::RunLog>(
      observe::RunLog::Options{.run_dir = session.config.observe.run_dir,
                               .tensorboard = session.config.observe.tensorboard,
                               .enabled = session.is_root() && !session.request.dry_run,
                               .resume_step = progress.next_rollout,
                               .resume_train_step = progress.optimizer_steps,
                               .total_steps = progress.num_rollouts});
  if (session.watch) session.watch->show_records(session.communicator, session.path("ranks"));
  if (!session.is_root()) return;
  log_info("{}", banner(run));
  for (const std::string& line : describe_taken_keys(session.config)) log_info("{}", line);
  if (const std::string text = describe_truncated_sampling(session.config); !text.empty())
    log_warn("{}", text);
  if (session.request.dry_run) log_info("{}", describe_checks(run));
  if (!session.request.dry_run && session.request.start.is_own)
    io::tidy_root(session.checkpoint_root, session.config.checkpoint.keep_last);
  if (!session.request.dry_run)
    write_settings(session.config.observe.run_dir, session.config.resolved_yaml);
}

}  // namespace

bool wants_engine(const RunConfig& config) {
  const bool generates = config.debug.load_rollout.empty() && !config.is_sft();
  return generates || !config.eval.eval_prompt_data.empty();
}

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

TrainingRun::TrainingRun(TrainRequest request, dist::World& world)
    : session(std::move(request), world) {
  const RunConfig& config = session.config;
  load_policy(session, trainer_side, rollout_side);
  const model::ModelSpec& spec = trainer_side.policy.spec;
  if (!config.checkpoint.save_hf.empty() && session.is_root() && !session.request.dry_run)
    try_export(spec, config.model.hf_checkpoint, config.checkpoint.save_hf);
  load_data(session, trainer_side.policy, rollout_side);
  trainer_side.decoders =
      make_decoders(spec, session.model_ranks, session.request.device,
                    longest_sequence(config, rollout_side, spec), session.engine_shape.leaves);
  // Of a dump nothing is known yet: score_reference looks at its samples.
  build_reference(session, longest_rollout(config, rollout_side), trainer_side);
  grid = std::make_unique<dist::ProcessGrid>(session.communicator, session.model_ranks.grid.sizes(),
                                             session.request.device);
  build_trainer(session, *grid, trainer_side);
  keep_reference(session, trainer_side);
  if (wants_engine(config)) engine_grid = make_engine_grid(session);
  build_engine(session, *grid, engine_grid, trainer_side, memory, rollout_side);
  progress.num_rollouts = rollout_side.source->num_rollouts();
  if (!session.request.start.checkpoint.empty())
    resume(session, trainer_side, rollout_side, progress);
  session.communicator.barrier();  // nobody's inputs are at fault: the run folder may fill
  open_run_folder(*this);
}

}  // namespace slimexx::rl

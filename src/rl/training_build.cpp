// Building a run: models, data, engine, trainer, resume.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "resume_check.h"
#include "run_summary.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"
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

}  // namespace

TrainingRun::TrainingRun(TrainRequest request, dist::World& world)
    : request_(std::move(request)),
      config_(request_.config),
      world_(world),
      communicator_(world.communicator()),
      root_of_checkpoints_(checkpoint_root(config_, config_.observe.run_dir)) {
  if (config_.observe.trace) observe::enable_trace(world.rank());
  if (!config_.checkpoint.save_hf.empty()) check_export_target(config_.checkpoint.save_hf);
  check_writable(root_of_checkpoints_);
  build_model();
  if (!config_.checkpoint.save_hf.empty() && is_root() && !request_.dry_run)
    try_export(*policy_.store, policy_.spec, config_.model.hf_checkpoint,
               config_.checkpoint.save_hf);
  build_data();
  num_rollouts_ = source_ != nullptr ? source_->num_rollouts() : config_.num_rollout;
  transformer_ =
      std::make_unique<model::Decoder>(policy_.spec, request_.device, longest_sequence());
  policy_weights_ = model::bind_weights(*policy_.store, policy_.spec);
  build_reference();
  build_trainer();
  build_engine();
  if (!request_.start.checkpoint.empty()) resume();
  communicator_.barrier();  // nobody's inputs are at fault: the run folder may fill
  open_run_folder();
}

// From here on the run leaves traces on disk; a start that failed, or was a trial, has left none.
void TrainingRun::open_run_folder() {
  if (!request_.dry_run) {
    if (is_root() && request_.start.sets_rows_aside) set_rows_aside(config_.observe.run_dir);
    make_directories(run_path("logs"));
    open_log_file(run_path(fmt::format("logs/rank_{:03}.log", world_.rank())));
  }
  log_ = std::make_unique<observe::RunLog>(
      observe::RunLog::Options{.run_dir = config_.observe.run_dir,
                               .tensorboard = config_.observe.tensorboard,
                               .enabled = is_root() && !request_.dry_run,
                               .resume_step = next_rollout_,
                               .resume_train_step = optimizer_steps_,
                               .total_steps = num_rollouts_});
  if (!request_.dry_run) {
    watch_ = std::make_unique<dist::RankWatch>(
        communicator_,
        dist::RankWatchOptions{.directory = run_path("ranks"),
                               .warn_s = config_.parallel.rank_silence_warn_s,
                               .limit_s = config_.parallel.rank_silence_limit_s},
        [this](const std::string& what) { log_->write_failure(next_rollout_, what); });
  }
  if (!is_root()) return;
  log_info("{}", banner());
  for (const std::string& line : describe_taken_keys(config_)) log_info("{}", line);
  if (const std::string text = describe_truncated_sampling(config_); !text.empty())
    log_warn("{}", text);
  if (request_.dry_run) log_info("{}", describe_checks());
  if (!request_.dry_run && request_.start.is_own)
    io::tidy_root(root_of_checkpoints_, config_.checkpoint.keep_last);
  if (!request_.dry_run) write_settings(config_.observe.run_dir, config_.resolved_yaml);
}

TrainingRun::~TrainingRun() = default;

void TrainingRun::build_model() {
  policy_ = config_.debug.random_weights
                ? make_random_model(config_.model.hf_checkpoint, request_.device, true,
                                    static_cast<uint64_t>(config_.data.seed))
                : load_model(config_.model.hf_checkpoint, request_.device, true, is_root());
  stop_token_ids_ = policy_.eos_token_ids;
  for (int64_t id : config_.rollout.rollout_stop_token_ids)
    stop_token_ids_.push_back(static_cast<int32_t>(id));
}

// The reference is a model of its own: of the policy it shares the vocabulary only.
void TrainingRun::build_reference() {
  if (config_.model.ref_load.empty() || (!config_.rl.use_kl_loss && config_.rl.kl_coef == 0) ||
      config_.is_sft())
    return;
  reference_ = describe_model(config_.model.ref_load);
  const int64_t known = reference_.spec.max_positions;
  require(reference_.spec.vocab_size == policy_.spec.vocab_size,
          fmt::format("the reference has {} tokens, the policy {}", reference_.spec.vocab_size,
                      policy_.spec.vocab_size),
          "use a reference of the same tokenizer", config_.model.ref_load);
  // Of a dump nothing is known yet: score_reference looks at its samples.
  const int64_t longest = prompts_ ? longest_trained() : 0;
  require(longest <= known,
          fmt::format("the longest prompt and a full response are {} tokens, the reference knows "
                      "{} positions",
                      longest, known),
          "lower rollout.rollout_max_response_len, or use a reference of as many positions",
          config_.model.ref_load + "/config.json: max_position_embeddings");
  reference_transformer_ = std::make_unique<model::Decoder>(
      reference_.spec, request_.device, std::min(known, transformer_->max_positions()));
  // A reference that is only logged lies in the gradients' memory while it is used.
  reference_is_transient_ = config_.rl.logs_reference_only() &&
                            model::ParameterStore::weight_bytes(reference_.spec, request_.device) <=
                                policy_.store->gradient_memory().size_bytes();
  if (!reference_is_transient_)
    reference_ = load_model(config_.model.ref_load, request_.device, false, is_root());
}

bool TrainingRun::wants_engine() const {
  const bool generates = config_.debug.load_rollout.empty() && !config_.is_sft();
  return generates || !config_.eval.eval_prompt_data.empty();
}

void TrainingRun::build_data() {
  const bool from_dump = !config_.debug.load_rollout.empty();
  if (!from_dump || wants_engine()) {
    text_ = load_text_side(config_.model.hf_checkpoint);
    require(text_.tokenizer != nullptr, "the checkpoint has no tokenizer.json",
            "add one to the folder", config_.model.hf_checkpoint);
    require(!config_.data.apply_chat_template || text_.chat_template != nullptr,
            "data.apply_chat_template is true, and the checkpoint has no chat template",
            "add chat_template.jinja to the folder, or turn it off", config_.model.hf_checkpoint);
    require(text_.tokenizer->vocab_size() <= policy_.spec.vocab_size,
            fmt::format("the tokenizer has {} tokens, the model {}", text_.tokenizer->vocab_size(),
                        policy_.spec.vocab_size),
            "use the tokenizer that belongs to the model", config_.model.hf_checkpoint);
  }
  eval_sets_ = load_eval_sets(config_, text_.tokenizer.get(), text_.chat_template.get());
  if (from_dump) {
    source_ = make_dump_source(config_);
  } else if (config_.is_sft()) {
    source_ =
        make_sft_source(config_, data::SftSet::load(sft_options(config_, stop_token_ids_),
                                                    *text_.tokenizer, text_.chat_template.get()));
  } else {
    prompts_ = std::make_shared<const data::PromptSet>(data::PromptSet::load(
        prompt_options(config_), text_.tokenizer.get(), text_.chat_template.get()));
  }
}

int64_t TrainingRun::longest_trained() const {
  if (prompts_) return prompts_->longest() + config_.rollout.rollout_max_response_len;
  return source_->longest_sequence().value_or(policy_.spec.max_positions);
}

int64_t TrainingRun::longest_generated() const {
  return std::max(prompts_ ? longest_trained() : 0, longest_evaluated(eval_sets_, config_));
}

int64_t TrainingRun::longest_sequence() const {
  if (!wants_engine()) return policy_.spec.max_positions;
  const int64_t longest = longest_generated();
  require(longest <= policy_.spec.max_positions,
          fmt::format(
              "the longest prompt and a full response are {} tokens, the model knows {} positions",
              longest, policy_.spec.max_positions),
          "lower rollout.rollout_max_response_len, or drop long prompts by "
          "rollout.rollout_max_prompt_len",
          "max_position_embeddings");
  return prompts_ ? longest : policy_.spec.max_positions;
}

// Takes what is left of the device's memory, for the engine and the trainer.
void TrainingRun::build_engine() {
  const tensor::Tensor cache_memory = take_pool();
  if (!wants_engine()) return;
  engine_ = std::make_unique<rollout::Engine>(
      *transformer_, policy_weights_, request_.device,
      engine_options(config_.rollout, longest_generated()),
      [this](int32_t id) -> const std::string& { return text_.tokenizer->token_bytes(id); },
      text_.tokenizer->vocab_size(), cache_memory);
  generator_ = std::make_unique<Generator>(*engine_, text_.tokenizer.get(), communicator_);
  if (prompts_) grader_ = reward::make_grader(config_.reward);
  if (config_.eval.eval_interval > 0)
    eval_grader_ = reward::make_grader(eval_reward_options(config_));
  if (prompts_)
    source_ = make_generated_source(config_, prompts_, *generator_, *grader_, stop_token_ids_);
  if (num_rollouts_ == 0 && source_) num_rollouts_ = source_->num_rollouts();
}

void TrainingRun::build_trainer() {
  trainer_ = std::make_unique<train::Trainer>(
      *transformer_, *policy_.store, communicator_, config_.train, config_.optimizer,
      static_cast<float>(config_.rollout.rollout_temperature), request_.device);
  checkpoints_ = std::make_unique<CheckpointWriter>(
      CheckpointWriterOptions{.root = root_of_checkpoints_,
                              .side_files_from = config_.model.hf_checkpoint,
                              .keep_last = config_.checkpoint.keep_last,
                              .async = config_.checkpoint.async_save},
      communicator_);
}

// The training state of a checkpoint, or of one that holds weights only (convert-hf) the weights.
void TrainingRun::resume() {
  const std::string& path = request_.start.checkpoint;
  observe::Span span("load_model");
  const io::Checkpoint checkpoint = io::Checkpoint::open(path);
  checkpoint.verify_hashes();
  if (checkpoint.state().contains("next_rollout")) {
    check_same_model(path, config_.model.hf_checkpoint);
    if (is_root()) compare_settings(find_earlier_settings(request_.start), config_.resolved_yaml);
    restore_training(checkpoint);
    if (is_root()) log_info("continuing from {} at rollout {}", path, next_rollout_);
  } else {
    require(!request_.start.wants_training, "this checkpoint holds weights only, no training state",
            "start from its weights by model.load", path);
    model::load_checkpoint_weights(*policy_.store, checkpoint);
    trainer_->optimizer().take_master();
    if (is_root()) log_info("the weights are those of {}", path);
  }
  if (engine_) engine_->on_weights_updated();
}

void TrainingRun::restore_training(const io::Checkpoint& checkpoint) {
  const Json& state = checkpoint.state();
  const std::string where = checkpoint.directory() + "/manifest.json";
  load_training_state(checkpoint, *policy_.store, trainer_->optimizer());
  next_rollout_ = io::read_counter(state, "next_rollout", where);
  optimizer_steps_ = io::read_counter(state, "optimizer_steps", where);
  skipped_steps_ = io::read_counter(state, "skipped_steps", where);
  if (state.contains("skipped_in_a_row"))  // not in older checkpoints
    skipped_in_a_row_ = io::read_counter(state, "skipped_in_a_row", where);
  trainer_->optimizer().set_num_steps(io::read_counter(state, "adam_steps", where));
  if (!state.contains("data"))
    throw Error(ErrorCode::kInput, "key \"data\" of the state is missing",
                "the checkpoint is damaged: load another one", where);
  try {
    source_->restore(state.at("data"));
  } catch (const Error& e) {
    throw e.with_where(where);
  }
}

std::string TrainingRun::run_path(const std::string& name) const {
  return join_path(config_.observe.run_dir, name);
}

// How the ranks were started, before what they were told.
std::string TrainingRun::launcher() const {
  return world_.size() > 1 ? fmt::format("mpirun -np {} ", world_.size()) : "";
}

std::string TrainingRun::start_command() const { return launcher() + request_.start_command; }

std::string TrainingRun::resume_command() const { return launcher() + request_.resume_command; }

std::string TrainingRun::banner() const {
  const auto& spec = policy_.spec;
  std::string text =
      fmt::format("slimexx {}{}\n",
                  config_.is_sft() ? "supervised fine-tuning" : config_.rl.advantage_estimator,
                  request_.dry_run ? " (dry run)" : "");
  text += fmt::format("  model     {} ({}), {} parameters, {} layers, hidden {}, vocabulary {}\n",
                      config_.model.hf_checkpoint, spec.architecture,
                      format_count(static_cast<double>(policy_.store->num_elements())),
                      spec.num_layers(), spec.hidden_size, spec.vocab_size);
  text += fmt::format("  ranks     {} x {} threads on {}\n", world_.size(), num_threads(),
                      tensor::to_string(request_.device));
  if (prompts_) {
    text += fmt::format("  prompts   {} from {}{}\n", prompts_->size(), config_.data.prompt_data,
                        prompts_->num_dropped() > 0
                            ? fmt::format(" ({} too long, dropped)", prompts_->num_dropped())
                            : "");
  }
  text += fmt::format("  batch     {}\n", describe_batch(config_));
  text += fmt::format("  rollouts  {} of {} done\n", next_rollout_, num_rollouts_);
  text += fmt::format("  memory    of one rank on {}\n{}", tensor::to_string(request_.device),
                      memory_table());
  text += fmt::format("  run       {}\n", config_.observe.run_dir);
  if (grader_) text += fmt::format("  reward    {}\n", config_.reward.rm_type);
  text += fmt::format("  resume    {}", resume_command());
  return text;
}

}  // namespace slimexx::rl

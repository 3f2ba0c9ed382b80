#include "slimexx/rl/run_start.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rl/checkpoint/run_checkpoint.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/log.h"
#include "slimexx/config/config.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

std::string find_checkpoint(const std::string& root) {
  return path_exists(root) ? io::find_latest(root) : "";
}

bool has_rows(const std::string& run_dir) {
  const auto is_filled = [&](const char* name) {
    std::error_code error;
    const auto size = fs::file_size(join_path(run_dir, name), error);
    return !error && size > 0;
  };
  return is_filled("metrics.jsonl") || is_filled("train_steps.jsonl");
}

// Whether the folder has files of debug.save_rollout.
bool has_dumps(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with("rollout_") && name.ends_with(".jsonl")) return true;
  }
  return false;
}

// The value of a key; empty if the text does not set it.
std::string find_setting(const std::string& resolved_yaml, const std::string& key) {
  if (resolved_yaml.empty()) return {};
  for (const config::SettingChange& change : config::list_changes("{}", resolved_yaml))
    if (change.key == key) return change.after;
  return {};
}

bool is_same_folder(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error);
}

std::string numbered(const std::string& name, int64_t number) {
  return number == 1 ? name : fmt::format("{}-{}", name, number);
}

// The program names folders NAME, NAME-2, NAME-3 ... Returns the last number that exists (the
// newest run); 0 if none does.
int64_t find_newest_number(const std::string& name) {
  const fs::path path = fs::absolute(name).lexically_normal();
  const std::string stem = path.filename().string() + "-";
  int64_t newest = path_exists(name) ? 1 : 0;
  std::error_code error;
  for (fs::directory_iterator it(path.parent_path(), error);
       !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string found = it->path().filename().string();
    if (!found.starts_with(stem)) continue;
    const std::string digits = found.substr(stem.size());
    const bool plain = !digits.empty() && digits.size() <= 9 && digits[0] != '0' &&
                       digits.find_first_not_of("0123456789") == std::string::npos;
    if (plain) newest = std::max<int64_t>(newest, std::stoll(digits));
  }
  return newest;
}

// Whether the folder is empty or holds only entries that a save creates. The caller has found no
// complete checkpoint in it.
bool is_unused_root(const std::string& root) {
  std::error_code error;
  for (fs::directory_iterator it(root, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (!name.starts_with("step_") && !name.starts_with("latest") && !name.starts_with('.'))
      return false;
  }
  return true;
}

class Decision {
 public:
  Decision(const RunConfig& config, const StartWish& wish, RunLocks& locks)
      : config_(config), wish_(wish), locks_(locks) {}

  RunStart decide() {
    newest_ = wish_.names_run_dir ? 1 : find_newest_number(config_.observe.run_dir);
    find_start();
    refuse_foreign_dumps();
    if (start_.is_own) {
      refuse_foreign_checkpoints();
      take_folder();
    } else if (wish_.names_run_dir) {
      refuse_foreign_rows();
      take_folder();
    } else {
      take_free_folder();
    }
    take_root();
    return start_;
  }

 private:
  std::string folder_of(int64_t number) const {
    return numbered(config_.observe.run_dir, std::max<int64_t>(1, number));
  }

  // Whether the checkpoint is in the folder of checkpoints of a run in `run_dir`.
  bool is_in_root(const std::string& run_dir) const {
    const std::string root = checkpoint_root(config_, run_dir);
    fs::path checkpoint = fs::absolute(start_.checkpoint).lexically_normal();
    if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
    return is_same_folder(checkpoint, root) || is_same_folder(checkpoint.parent_path(), root);
  }

  void find_start() {
    start_.run_dir = folder_of(newest_);
    const std::string root = checkpoint_root(config_, start_.run_dir);
    if (wish_.resume == ResumeWish::kFolder) {
      start_.checkpoint = require_found(
          io::find_checkpoint(wish_.folder),
          "give a step_* folder, the folder that holds it, or the folder of a run", wish_.folder);
    } else if (wish_.resume == ResumeWish::kNewest) {
      start_.checkpoint = require_checkpoint(
          root,
          "give one with --resume DIR; --resume auto, or no --resume, starts from the beginning");
    } else {
      if (wish_.resume == ResumeWish::kAuto) start_.checkpoint = find_checkpoint(root);
      if (start_.checkpoint.empty()) find_load();
    }
    // A run that takes only the weights starts anew, even if they come from a run in the same
    // folder.
    if (start_.checkpoint.empty() || start_.use == CheckpointUse::kWeights) return;
    for (int64_t number = newest_; number >= 1 && !start_.is_own; --number) {
      if (!is_in_root(folder_of(number))) continue;
      start_.is_own = true;
      start_.run_dir = folder_of(number);
    }
  }

  // Takes the checkpoint of model.load if there is one. If load and checkpoint.save are the same
  // folder, a restarted run continues.
  void find_load() {
    const std::string& load = config_.model.load;
    if (load.empty()) return;
    start_.use = config_.model.finetune ? CheckpointUse::kWeights : CheckpointUse::kStateOrWeights;
    const auto step = config_.model.ckpt_step;
    if (step && !has_gone_back()) {
      const std::string direct = io::step_directory(load, *step),
                        of_run = io::step_directory(join_path(load, "checkpoints"), *step);
      start_.checkpoint =
          require_checkpoint(path_exists(direct) || !path_exists(of_run) ? direct : of_run,
                             "set model.ckpt_step to a step that exists");
      return;
    }
    start_.checkpoint = io::find_checkpoint(load);
    if (!start_.checkpoint.empty()) return;
    if (!is_unused_root(load)) {
      throw Error(ErrorCode::kUsage, "the folder of model.load holds no complete checkpoint",
                  "give a checkpoint, or leave model.load out", load);
    }
    log_warn("model.load: {} holds no checkpoint yet: the run starts from model.hf_checkpoint",
             load);
  }

  // Whether this run was already started with this model.ckpt_step, for example before its job was
  // requeued. That start went back to the step; later work of the run must not be lost.
  bool has_gone_back() const {
    const std::string& run_dir = start_.run_dir;
    const std::string settings = join_path(run_dir, "config.resolved.yaml");
    if (config_.model.finetune || !path_exists(settings) ||
        !is_same_folder(config_.model.load, checkpoint_root(config_, run_dir)))
      return false;
    for (const auto& change : config::list_changes(read_text_file(settings), config_.resolved_yaml))
      if (change.key == "model.ckpt_step" || change.key == "model.load") return false;
    log_info(
        "model.ckpt_step: this run already went back to step {} once, and continues from its "
        "newest checkpoint; use --resume DIR to go back again",
        *config_.model.ckpt_step);
    return true;
  }

  static std::string require_found(std::string found, const std::string& hint,
                                   const std::string& where) {
    if (found.empty())
      throw Error(ErrorCode::kUsage, "there is no complete checkpoint to resume from", hint, where);
    return found;
  }
  static std::string require_checkpoint(const std::string& root, const std::string& hint) {
    return require_found(find_checkpoint(root), hint, root);
  }

  void refuse_foreign_rows() {
    if (!has_rows(start_.run_dir)) return;
    const bool no_checkpoint = find_checkpoint(checkpoint_root(config_, start_.run_dir)).empty();
    if (wish_.resume == ResumeWish::kAuto && no_checkpoint) {
      start_.sets_rows_aside = true;
      return;
    }
    throw Error(ErrorCode::kUsage, "the run folder holds another run",
                no_checkpoint
                    ? "set observe.run_dir to a new folder; --resume auto starts from the "
                      "beginning in this one and moves its earlier rows aside"
                    : "continue that run with --resume, or set observe.run_dir to a new folder",
                start_.run_dir);
  }

  // If the run folder has checkpoints of another run, its metrics are of another run too.
  void refuse_foreign_checkpoints() {
    const std::string beside = join_path(start_.run_dir, "checkpoints");
    if (is_same_folder(beside, checkpoint_root(config_, start_.run_dir)) ||
        find_checkpoint(beside).empty())
      return;
    throw Error(ErrorCode::kUsage, "the run folder holds another run",
                "set observe.run_dir to a new folder", start_.run_dir);
  }

  // A dump may only replace dumps of an earlier start of the same run.
  void refuse_foreign_dumps() const {
    const DebugOptions& debug = config_.debug;
    const bool begins = start_.checkpoint.empty() || start_.use == CheckpointUse::kWeights;
    for (const auto& [folder, name] : {std::pair{debug.dump_weights, "weights.safetensors"},
                                       {debug.dump_gradients, "gradients.safetensors"}})
      if (begins && !folder.empty()) refuse_dump_target(join_path(folder, name));
    if (debug.save_rollout.empty() || !has_dumps(debug.save_rollout)) return;
    const std::string settings = join_path(start_.run_dir, "config.resolved.yaml");
    const bool continues = start_.is_own || wish_.resume == ResumeWish::kAuto;
    constexpr const char* kKey = "debug.save_rollout";
    if (continues && path_exists(settings) &&
        find_setting(read_text_file(settings), kKey) == find_setting(config_.resolved_yaml, kKey))
      return;
    throw Error(ErrorCode::kUsage,
                "the folder of debug.save_rollout holds the dumps of another run",
                "choose a new folder", debug.save_rollout);
  }

  void take_folder() {
    if (wish_.dry_run) return;
    auto lock = FolderLock::take(start_.run_dir);
    if (!lock)
      throw Error(ErrorCode::kUsage, "another run is writing to this run folder",
                  "wait for it or stop it, or set observe.run_dir", start_.run_dir);
    locks_.run_dir.emplace(std::move(*lock));
  }

  // Takes the newest folder if nothing was done in it; otherwise the next number.
  void take_free_folder() {
    for (int64_t number = std::max<int64_t>(1, newest_);; ++number) {
      start_.run_dir = folder_of(number);
      if (has_rows(start_.run_dir) ||
          !find_checkpoint(join_path(start_.run_dir, "checkpoints")).empty())
        continue;
      if (wish_.dry_run) return;
      auto lock = FolderLock::take(start_.run_dir);
      if (!lock) continue;
      locks_.run_dir.emplace(std::move(*lock));
      return;
    }
  }

  void take_root() {
    const std::string root = checkpoint_root(config_, start_.run_dir);
    if (!start_.is_own && !find_checkpoint(root).empty()) {
      throw Error(ErrorCode::kUsage, "the folder of checkpoints holds checkpoints of another run",
                  "continue that run with --resume, or set checkpoint.save to another folder",
                  root);
    }
    // A step folder that no run wrote would block a save.
    const std::string foreign = io::find_foreign_step(root, start_.is_own ? start_.checkpoint : "");
    if (!foreign.empty()) {
      throw Error(ErrorCode::kUsage,
                  "the folder of checkpoints holds a step folder that no run wrote",
                  "move that folder, or set checkpoint.save to another one", foreign);
    }
    check_writable(root);
    if (wish_.dry_run || is_same_folder(root, start_.run_dir)) return;
    auto lock = FolderLock::take(root);
    if (!lock)
      throw Error(ErrorCode::kUsage, "another run is writing to this folder of checkpoints",
                  "wait for it or stop it, or set checkpoint.save to another folder", root);
    locks_.checkpoints.emplace(std::move(*lock));
  }

  const RunConfig& config_;
  const StartWish& wish_;
  RunLocks& locks_;
  RunStart start_;
  int64_t newest_ = 0;
};

}  // namespace

std::string checkpoint_root(const RunConfig& config, const std::string& run_dir) {
  return config.checkpoint.save.empty() ? join_path(run_dir, "checkpoints")
                                        : config.checkpoint.save;
}

RunStart decide_start(const RunConfig& config, const StartWish& wish, RunLocks& locks) {
  return Decision(config, wish, locks).decide();
}

std::string start_to_json(const RunStart& start) {
  return Json{{"run_dir", start.run_dir},
              {"checkpoint", start.checkpoint},
              {"use", start.use},
              {"is_own", start.is_own},
              {"sets_rows_aside", start.sets_rows_aside}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunStart start_from_json(const std::string& text) {
  const Json json = parse_json(text, "start of the run");
  return {.run_dir = json.at("run_dir"),
          .checkpoint = json.at("checkpoint"),
          .use = json.at("use"),
          .is_own = json.at("is_own"),
          .sets_rows_aside = json.at("sets_rows_aside")};
}

}  // namespace slimexx::rl

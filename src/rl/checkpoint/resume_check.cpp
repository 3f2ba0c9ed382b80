#include "rl/checkpoint/resume_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/log.h"
#include "slimexx/config/config.h"
#include "slimexx/rl/fp8_choice.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

constexpr size_t kShownBytes = 60;

std::string shorten(const Json* value) {
  if (value == nullptr) return "absent";
  std::string text = value->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

struct JsonDifference {
  std::string key, before, after;
};

const Json* find_member(const Json& object, const std::string& name) {
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

std::optional<JsonDifference> find_difference(const Json& before, const Json& after,
                                              const std::string& key);

std::optional<JsonDifference> find_difference_in_object(const Json& before, const Json& after,
                                                        const std::string& key) {
  const auto path = [&](const std::string& name) { return key.empty() ? name : key + "." + name; };
  for (const auto& [name, value] : before.items()) {
    const Json* other = find_member(after, name);
    if (other == nullptr) return JsonDifference{path(name), shorten(&value), shorten(nullptr)};
    if (auto difference = find_difference(value, *other, path(name))) return difference;
  }
  for (const auto& [name, value] : after.items()) {
    if (find_member(before, name) == nullptr)
      return JsonDifference{path(name), shorten(nullptr), shorten(&value)};
  }
  return std::nullopt;
}

// The first place where two values differ. The order of an object's keys does not count.
std::optional<JsonDifference> find_difference(const Json& before, const Json& after,
                                              const std::string& key) {
  if (before.is_object() && after.is_object()) return find_difference_in_object(before, after, key);
  if (before.is_array() && after.is_array() && before.size() == after.size()) {
    for (size_t i = 0; i < before.size(); ++i) {
      if (auto difference = find_difference(before[i], after[i], fmt::format("{}[{}]", key, i)))
        return difference;
    }
    return std::nullopt;
  }
  if (before == after) return std::nullopt;
  return JsonDifference{key, shorten(&before), shorten(&after)};
}

// Keys of config.json that no computation depends on: authorship, dtype, and generation in Python.
constexpr std::string_view kIdleKeys[] = {"_name_or_path", "transformers_version", "use_cache",
                                          "dtype", "torch_dtype"};

Json read_meaningful(const std::string& path, bool is_config) {
  Json json = parse_json_file(path);
  if (!is_config || !json.is_object()) return json;
  for (const std::string_view key : kIdleKeys) json.erase(std::string(key));
  return json;
}

void check_same_file(const std::string& name, const std::string& checkpoint,
                     const std::string& hf_checkpoint) {
  const std::string saved = join_path(checkpoint, name), now = join_path(hf_checkpoint, name);
  if (!path_exists(saved) || !path_exists(now)) return;  // a dump needs no tokenizer
  if (read_text_file(saved) == read_text_file(now)) return;
  const bool is_config = name == "config.json";
  const auto difference =
      find_difference(read_meaningful(saved, is_config), read_meaningful(now, is_config), "");
  if (!difference) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} differs from that of the checkpoint {}: {} was {} and is now {}",
                          name, checkpoint, difference->key, difference->before, difference->after),
              "restore the file of that run, or start a new run from its weights (model.finetune)",
              now);
}

bool is_same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || fs::equivalent(a, b, error);
}

// If the reference followed the policy, or may have, it comes from the checkpoint, not from a
// folder.
void refuse_other_reference(const config::SettingChange& change) {
  if (change.key != "model.ref_load" || change.before.empty() ||
      is_same_folder(change.before, change.after))
    return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("the checkpoint holds a reference model that started from {}, but model.ref_load "
                  "is now {}, which the run would ignore",
                  change.before, change.after),
      fmt::format("set it to {} again (a link is enough if the folder has moved), or start a new "
                  "run from the checkpoint's weights with model.load and model.finetune",
                  change.before),
      change.key);
}

// Refuses changes of settings that the saved state depends on. A key that is absent, as in the
// settings of an older version, has its default.
void refuse_change(const config::SettingChange& change, bool trains_mtp) {
  const auto is_unset = [](const std::string& value) { return value.empty() || value == "\"\""; };
  const bool swaps_source =
      change.key == "debug.load_rollout" && is_unset(change.before) != is_unset(change.after);
  const auto is_true = [](const std::string& value) { return value == "true"; };
  // Masters and moments exist only for the parameters that were trained.
  const bool changes_layers = (change.key == "train.enable_mtp_training" &&
                               is_true(change.before) != is_true(change.after)) ||
                              (change.key == "train.mtp_num_layers" && trains_mtp);
  const auto is_no_list = [](const std::string& value) { return value.empty() || value == "[]"; };
  const bool changes_frozen = (change.key == "train.freeze_params_name_list" ||
                               change.key == "train.only_train_params_name_list") &&
                              !(is_no_list(change.before) && is_no_list(change.after));
  if (change.key != "train.loss_type" && !swaps_source && !changes_layers && !changes_frozen)
    return;
  throw Error(ErrorCode::kUsage,
              fmt::format("the checkpoint is from a run with {} \"{}\", but it is now \"{}\"",
                          change.key, change.before, change.after),
              "restore the earlier value, or start a new run from the weights (model.finetune)",
              change.key);
}

// Returns the first path of NAME.1.EXTENSION, NAME.2.EXTENSION, ... that does not exist.
std::string free_name(const std::string& directory, const std::string& stem,
                      const std::string& extension) {
  for (int number = 1;; ++number) {
    const std::string path = join_path(directory, fmt::format("{}.{}{}", stem, number, extension));
    if (!path_exists(path)) return path;
  }
}

}  // namespace

void check_same_model(const std::string& checkpoint, const std::string& hf_checkpoint) {
  for (const char* name : {"config.json", "tokenizer.json"})
    check_same_file(name, checkpoint, hf_checkpoint);
}

std::string find_config_difference(const std::string& earlier, const std::string& now) {
  Json before = read_meaningful(earlier, true), after = read_meaningful(now, true);
  for (Json* json : {&before, &after})
    if (json->is_object()) json->erase("quantization_config");  // exports are not quantized
  const auto difference = find_difference(before, after, "");
  if (!difference) return {};
  return fmt::format("{} is {}, and in {} it is {}", difference->key, difference->before, now,
                     difference->after);
}

std::string find_earlier_settings(const RunStart& start) {
  fs::path checkpoint = fs::absolute(start.checkpoint).lexically_normal();
  if (!checkpoint.has_filename()) checkpoint = checkpoint.parent_path();
  const std::string folder =
      start.is_own ? start.run_dir : checkpoint.parent_path().parent_path().string();
  const std::string path = join_path(folder, "config.resolved.yaml");
  return path_exists(path) ? read_text_file(path) : "";
}

void check_same_fp8(const io::Checkpoint& checkpoint, const model::ModelSpec& spec) {
  const auto saved = checkpoint.state().find("numerics");
  const Json before = saved != checkpoint.state().end() ? *saved : fp8_identity(model::ModelSpec());
  const Json now = fp8_identity(spec);
  const std::string other = "start a new run from the weights (model.finetune)";
  const auto check = [&](const std::string& section, const char* key, const Json& absent) {
    const Json was = before.value(key, absent), is = now.value(key, absent);
    if (was == is) return;
    throw Error(ErrorCode::kUsage,
                fmt::format("the checkpoint is from a run with {}{} {}, but it is now {}", section,
                            key, was.dump(), is.dump()),
                "restore the earlier value, or " + other, section + key);
  };
  check("numerics.", "fp8", Json());
  check("numerics.", "fp8_scale_fmt", Json());
  check("rollout.", "kv_cache_dtype", "auto");
  const Json was = before.value("not_fp8", Json()), is = now.value("not_fp8", Json());
  if (was == is) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("the checkpoint's run kept {} matrices out of FP8, but this one keeps {}",
                          was.size(), is.size()),
              "restore the tensor parallel sizes, or " + other,
              "parallel.tensor_model_parallel_size");
}

void compare_settings(const std::string& earlier, const std::string& now, bool takes_reference) {
  if (earlier.empty()) {
    log_info(
        "the configuration of the run that saved this state is missing, so settings were not "
        "compared");
    return;
  }
  const auto changes = config::list_changes(earlier, now);
  const auto all = config::list_changes("{}", now);
  const bool trains_mtp = std::ranges::any_of(all, [](const config::SettingChange& setting) {
    return setting.key == "train.enable_mtp_training" && setting.after == "true";
  });
  std::string lines;
  for (const auto& change : changes) {
    refuse_change(change, trains_mtp);
    if (takes_reference) refuse_other_reference(change);
    lines += fmt::format("\n  {}: {} -> {}", change.key,
                         change.before.empty() ? "absent" : change.before,
                         change.after.empty() ? "absent" : change.after);
  }
  if (lines.empty()) return;
  log_info("settings that changed:{}", lines);
}

void write_settings(const std::string& run_dir, const std::string& resolved_yaml) {
  const std::string path = join_path(run_dir, "config.resolved.yaml");
  if (path_exists(path)) {
    if (read_text_file(path) == resolved_yaml) return;
    fs::rename(path, free_name(run_dir, "config.resolved", ".yaml"));
  }
  write_file_atomic(path, resolved_yaml);
}

void set_rows_aside(const std::string& run_dir) {
  std::string kept;
  for (const char* stem : {"metrics", "train_steps"}) {
    const std::string path = join_path(run_dir, std::string(stem) + ".jsonl");
    if (!path_exists(path)) continue;
    const std::string name = free_name(run_dir, stem, ".jsonl");
    fs::rename(path, name);
    kept += (kept.empty() ? "" : " and ") + name;
  }
  log_warn(
      "an earlier attempt left metrics but no checkpoint: the run starts from the beginning, and "
      "the earlier rows are now in {}",
      kept);
}

}  // namespace slimexx::rl

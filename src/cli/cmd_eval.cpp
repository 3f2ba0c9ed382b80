#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/run_flags.h"
#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/training.h"

namespace slimexx::cli {
namespace {

struct EvalFlags {
  std::string config, hf_checkpoint, device;
  std::vector<std::string> data, settings;
};

// The suffix "@[0:8]" picks rows.
std::string without_slice(const std::string& file) {
  return path_exists(file) ? file : file.substr(0, file.rfind("@["));
}

// "aime-2024.jsonl.zst" -> "aime-2024", "my set.jsonl" -> "my_set".
std::string name_of_set(const std::string& file) {
  std::filesystem::path path = without_slice(file);
  if (path.extension() == ".zst") path = path.stem();
  std::string name = path.stem().string();
  std::ranges::replace_if(
      name,
      [](char c) {
        return !rl::is_set_name({&c, 1});
      },
      '_');
  return name;
}

// --data as the value of eval.eval_prompt_data.
std::string eval_data_as_yaml(const std::vector<std::string>& data) {
  std::string yaml;
  std::set<std::string> names;
  std::vector<std::string> files;
  for (const std::string& entry : data) {
    const size_t equals = entry.find('=');
    const bool has_name = equals != std::string::npos && entry.find('/') > equals &&
                          !path_exists(without_slice(entry));
    const std::string file = has_name ? entry.substr(equals + 1) : entry;
    const std::string name = has_name ? entry.substr(0, equals) : name_of_set(file);
    if (name.empty() || file.empty()) {
      throw Error(ErrorCode::kUsage, fmt::format("\"{}\" names no set or no file", entry),
                  "--data FILE, or --data NAME=FILE", "--data");
    }
    if (!rl::is_set_name(name)) {
      throw Error(ErrorCode::kUsage, fmt::format("\"{}\" cannot be the name of a set", name),
                  "use letters, digits, _ . -", "--data");
    }
    if (!names.insert(name).second) {
      throw Error(ErrorCode::kUsage, fmt::format("two sets are called \"{}\"", name),
                  "name them: --data NAME=FILE", "--data");
    }
    files.push_back(without_slice(file));
    yaml += (yaml.empty() ? "{" : ", ") + quote_for_yaml(name) + ": " + quote_for_yaml(file);
  }
  for (const std::string& file : files) require_file("--data", file);
  return yaml + "}";
}

config::Config load_config(const EvalFlags& flags) {
  if (flags.config.empty() && (flags.hf_checkpoint.empty() || flags.data.empty())) {
    throw Error(ErrorCode::kUsage, "nothing to evaluate is named",
                "give --config FILE, or --hf-checkpoint DIR and --data FILE", "slimexx eval");
  }
  std::vector<config::Override> overrides;
  if (!flags.hf_checkpoint.empty()) {
    overrides.push_back({"model.hf_checkpoint", quote_for_yaml(flags.hf_checkpoint)});
  }
  if (!flags.data.empty()) {
    overrides.push_back({"eval.eval_prompt_data", eval_data_as_yaml(flags.data)});
  }
  for (auto& setting : parse_settings(flags.settings)) overrides.push_back(std::move(setting));
  if (flags.config.empty()) return config::Config::parse("", "the command line", overrides);
  return config::Config::load(flags.config, overrides);
}

void run_eval(const EvalFlags& flags, Session& session) {
  config::Config config = load_config(flags);
  rl::RunConfig run = rl::load_run_config(config, {.needs_training = false});
  if (run.eval.eval_prompt_data.empty()) {
    throw Error(ErrorCode::kUsage, "eval.eval_prompt_data is missing",
                "set it to {NAME: FILE}, or give --data FILE", flags.config);
  }
  const auto results = rl::run_evaluation(
      std::move(run), rl::select_device(flags.device, session.world.local_rank()), session.world);
  if (session.is_root()) print("{}\n", rl::format_eval_table(results));
}

}  // namespace

VerbBody declare_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  app.add_option("--config", flags->config, "A run's configuration (YAML)")->type_name("FILE");
  app.add_option("--hf-checkpoint", flags->hf_checkpoint, "Hugging Face folder of the model")
      ->type_name("DIR");
  app.add_option("--data", flags->data, "Prompts with labels (JSON lines)")
      ->type_name("[NAME=]FILE")
      ->expected(1, -1);
  add_set_flag(app, flags->settings);
  add_device_flag(app, flags->device);
  app.footer(
      "Examples:\n"
      "  slimexx eval --config run.yaml\n"
      "  slimexx eval --hf-checkpoint model/ --data aime=aime-2024.jsonl \\\n"
      "      --set reward.rm_type=deepscaler eval.n_samples_per_eval_prompt=16 \\\n"
      "            data.apply_chat_template=true eval.eval_max_response_len=4096");
  return [flags](Session& session) { run_eval(*flags, session); };
}

}  // namespace slimexx::cli

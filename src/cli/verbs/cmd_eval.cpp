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
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/rl/evaluation.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/rl/standalone_evaluation.h"

namespace slimexx::cli {
namespace {

struct EvalFlags {
  std::string config, hf_checkpoint, load, samples, device;
  std::vector<std::string> data, settings;
};

// Removes the suffix that selects rows, such as "@[0:8]".
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
      throw Error(ErrorCode::kUsage,
                  fmt::format("\"{}\" lacks the name of the set or the file", entry),
                  "write --data FILE or --data NAME=FILE", "--data");
    }
    if (!rl::is_set_name(name)) {
      throw Error(ErrorCode::kUsage, fmt::format("\"{}\" cannot be the name of a set", name),
                  "use only letters, digits, _, . and -", "--data");
    }
    if (!names.insert(name).second) {
      throw Error(ErrorCode::kUsage, fmt::format("two sets have the name \"{}\"", name),
                  "give each set a name: --data NAME=FILE", "--data");
    }
    files.push_back(without_slice(file));
    yaml += (yaml.empty() ? "{" : ", ") + quote_for_yaml(name) + ": " + quote_for_yaml(file);
  }
  for (const std::string& file : files) require_file("--data", file);
  return yaml + "}";
}

config::Config load_config(const EvalFlags& flags) {
  const bool names_model = !flags.hf_checkpoint.empty() || !flags.load.empty();
  if (flags.config.empty() && (!names_model || flags.data.empty())) {
    throw Error(ErrorCode::kUsage, "nothing to evaluate",
                "give --config FILE, or --hf-checkpoint DIR and --data FILE, or --load RUN and "
                "--data FILE",
                "slimexx eval");
  }
  std::vector<config::Override> overrides;
  if (!flags.hf_checkpoint.empty())
    overrides.push_back({"model.hf_checkpoint", quote_for_yaml(flags.hf_checkpoint)});
  // A model flag takes precedence over the checkpoint that the file resumes from.
  if (names_model)
    overrides.push_back({"model.load", flags.load.empty() ? "null" : quote_for_yaml(flags.load)});
  if (!flags.data.empty()) {
    overrides.push_back({"eval.eval_prompt_data", eval_data_as_yaml(flags.data)});
  }
  for (auto& setting : parse_settings(flags.settings)) overrides.push_back(std::move(setting));
  if (flags.config.empty()) return config::Config::parse("", "the command line", overrides);
  return config::Config::load(flags.config, overrides);
}

// Rank 0 chooses for all ranks, because a run may be writing to the folder.
rl::EvaluatedWeights agree_on_weights(const rl::RunConfig& run, Session& session) {
  dist::Collective& ranks = session.world.ranks();
  rl::EvaluatedWeights weights;
  dist::run_agreed(ranks, [&] {
    if (session.is_root()) weights = rl::find_evaluated_weights(run);
  });
  weights.folder = dist::broadcast_bytes(ranks, weights.folder, 0);
  weights.checkpoint = dist::broadcast_bytes(ranks, weights.checkpoint, 0);
  weights.are_random = weights.checkpoint.empty() && run.debug.random_weights;
  return weights;
}

void run_eval(const EvalFlags& flags, Session& session) {
  config::Config config = load_config(flags);
  rl::RunConfig run = rl::load_run_config(config, {.needs_training = false});
  if (run.eval.eval_prompt_data.empty()) {
    throw Error(ErrorCode::kUsage, "eval.eval_prompt_data is missing",
                "set it to {NAME: FILE}, or give --data FILE", flags.config);
  }
  const rl::EvaluatedWeights weights = agree_on_weights(run, session);
  const tensor::Device device = rl::select_device(flags.device, session.world.local_rank());
  std::string samples;
  dist::run_agreed(session.world.ranks(), [&] {
    if (session.is_root()) rl::check_samples_folder(flags.samples);
  });
  const auto results = rl::run_evaluation(run, weights, samples, device, session.world, [&] {
    samples = rl::choose_samples_folder(run, flags.samples);
    print("{}\n", rl::describe_weights(weights));
    flush_stdout();
  });
  if (!session.is_root()) return;
  print("{}\n", rl::format_eval_table(results));
  print("{}\n", samples.empty() ? "samples are not saved; use --samples DIR to save them"
                                : "samples: " + samples);
}

}  // namespace

VerbBody declare_eval(CLI::App& app) {
  auto flags = std::make_shared<EvalFlags>();
  app.add_option("--config", flags->config, "A run's configuration (YAML)")->type_name("FILE");
  app.add_option("--hf-checkpoint", flags->hf_checkpoint, "Hugging Face folder of the model")
      ->type_name("DIR");
  app.add_option(
         "--load", flags->load,
         "Run folder, folder of checkpoints, or one checkpoint; from a folder the newest, or "
         "step model.ckpt_step")
      ->type_name("RUN|CHECKPOINT");
  app.add_option(
         "--samples", flags->samples,
         "New folder for the samples; default: a folder in <observe.run_dir>/evaluations, if "
         "observe.run_dir is set")
      ->type_name("DIR");
  app.add_option("--data", flags->data, "Prompts with labels (JSON lines)")
      ->type_name("[NAME=]FILE")
      ->expected(1, -1);
  add_set_flag(app, flags->settings);
  add_device_flag(app, flags->device);
  app.footer(
      "Examples:\n"
      "  slimexx eval --config run.yaml --load runs/x\n"
      "  slimexx eval --load runs/x/checkpoints/step_000100 --data aime-2024.jsonl \\\n"
      "      --set reward.rm_type=deepscaler\n"
      "  slimexx eval --hf-checkpoint model/ --data aime=aime-2024.jsonl \\\n"
      "      --set reward.rm_type=deepscaler eval.n_samples_per_eval_prompt=16 \\\n"
      "            data.apply_chat_template=true eval.eval_max_response_len=4096\n"
      "\n"
      "The first line says which weights are evaluated: those of --load or model.load if one is "
      "given,\n"
      "otherwise those of model.hf_checkpoint. A checkpoint gives the same samples as its export. "
      "Keys\n"
      "that only training uses have no effect.");
  return [flags](Session& session) { run_eval(*flags, session); };
}

}  // namespace slimexx::cli

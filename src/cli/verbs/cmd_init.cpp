#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/owned_files.h"
#include "slimexx/model/families.h"
#include "slimexx/rl/export.h"
#include "slimexx/rl/model_ranks.h"
#include "slimexx/text/text_files.h"

namespace slimexx::cli {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

struct InitFlags {
  std::string model_config, save;
  text::TextSources text;
  int64_t seed = 0;
};

void check_target(const std::string& directory) {
  std::error_code error;
  if (!path_exists(directory) || (std::filesystem::is_directory(directory, error) &&
                                  std::filesystem::is_empty(directory, error))) {
    return;
  }
  throw Error(ErrorCode::kUsage, "the output folder is not empty",
              "choose a new folder, or remove this one", directory);
}

// The given config.json with the tokenizer's end tokens, if known, and without
// quantization_config, because the new weights are not quantised.
std::string make_config(const std::string& source, const text::TextFiles& text) {
  const Json given = parse_json(source, "config.json");
  Json config = given;
  const auto& ends = text.eos_token_ids;
  if (!ends.empty()) config["eos_token_id"] = ends.size() == 1 ? Json(ends.front()) : Json(ends);
  if (config.erase("quantization_config") > 0)
    log_info(
        "config.json is written without quantization_config, because the weights are not "
        "quantized");
  return config == given ? source : config.dump(2) + "\n";
}

void check_vocabulary(const InitFlags& flags, const text::TextFiles& text,
                      const model::ModelSpec& spec) {
  if (text.vocab_size <= spec.vocab_size) return;
  throw Error(ErrorCode::kUsage,
              fmt::format("key \"vocab_size\" is {}, but the tokenizer has {} tokens",
                          spec.vocab_size, text.vocab_size),
              fmt::format("set vocab_size to {} or more", text.vocab_size), flags.model_config);
}

model::ParameterStore make_store(const InitFlags& flags, const model::ModelSpec& spec) {
  try {
    return {spec, {}, false};
  } catch (const Error& e) {
    throw e.with_where(flags.model_config);
  }
}

void run_init(const InitFlags& flags, Session& session) {
  if (!session.is_root()) return;
  // The flag parser clamps too large values to INT64_MAX.
  if (flags.seed < 0 || flags.seed == INT64_MAX) {
    throw Error(ErrorCode::kUsage, "the value is out of range", "give a whole number of at least 0",
                "--seed");
  }
  require_file("--model-config", flags.model_config);
  if (!flags.text.chat_template.empty()) {
    require_file("--chat-template", flags.text.chat_template);
  }
  check_target(flags.save);
  const std::string config = read_text_file(flags.model_config, kMaxConfigBytes);
  const model::ModelSpec spec =
      model::read_model_spec(parse_json(config, flags.model_config), flags.model_config);
  const text::TextFiles text = text::collect_text_files(flags.text);
  check_vocabulary(flags, text, spec);

  model::ParameterStore store = make_store(flags, spec);
  model::init_random_weights(store, spec, static_cast<uint64_t>(flags.seed));
  NewFolder folder(flags.save, [&, is_weights = io::exported_files("")](std::string_view name) {
    return is_weights(name) || text.files.contains(std::string(name));
  });
  dist::Collective alone;
  rl::export_hf(store, rl::make_model_layout(spec, nullptr), spec, "", flags.save, alone);
  for (const auto& [name, content] : text.files) {
    const std::string path = join_path(flags.save, name);
    make_directories(std::filesystem::path(path).parent_path().string());
    write_file_atomic(path, content);
  }
  // Written last: without it the folder is not a checkpoint.
  write_file_atomic(join_path(flags.save, "config.json"), make_config(config, text));
  folder.keep();
  log_info("wrote {}: {}, {} parameters, seed {}", flags.save, spec.architecture,
           format_count(static_cast<double>(store.num_elements())), flags.seed);
}

}  // namespace

VerbBody declare_init(CLI::App& app) {
  auto flags = std::make_shared<InitFlags>();
  app.add_option("--model-config", flags->model_config, "The model's config.json")
      ->type_name("FILE")
      ->required();
  app.add_option("--save", flags->save, "Folder to write")->type_name("DIR")->required();
  app.add_option("--tokenizer", flags->text.tokenizer,
                 "Folder or tokenizer.json to copy, or byte-level: one token per byte value")
      ->type_name("DIR|FILE|byte-level");
  app.add_option("--chat-template", flags->text.chat_template, "Jinja file with the chat template")
      ->type_name("FILE");
  app.add_option("--eos-token", flags->text.eos_tokens,
                 "Text of the tokens that end generation; default: from the tokenizer")
      ->type_name("TEXT")
      ->expected(1, -1);
  app.add_option("--seed", flags->seed, "Seed for the random weights (default 0)")
      ->type_name("NUMBER");
  app.footer(
      "Weights are drawn from N(0, initializer_range), norms are 1 and biases 0, in the dtype of\n"
      "config.json. They depend only on the seed and the tensor's name.\n"
      "\n"
      "Examples:\n"
      "  slimexx init --model-config config.json --tokenizer byte-level --save model/\n"
      "  slimexx init --model-config config.json --tokenizer glm-4.5/ --chat-template glm.jinja "
      "\\\n"
      "      --eos-token '<|endoftext|>' '<|user|>' --seed 1 --save model/");
  return [flags](Session& session) { run_init(*flags, session); };
}

}  // namespace slimexx::cli

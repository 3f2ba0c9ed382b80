// `slimexx describe`: prints the model that was read from a config.json.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/describe.h"
#include "slimexx/model/families.h"
#include "slimexx/model/quantization.h"

namespace slimexx::cli {
namespace {

bool has_weights(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors") return true;
  return false;
}

// If there are weights next to config.json, they determine which MTP layers exist and the dtype
// that config.json does not name.
struct Description {
  model::ModelSpec spec;
  bool knows_copies = false;        // whether MTP copies of embedding and head are known
  model::ModelSpec of_config = {};  // with all MTP layers of config.json
};
Description read_description(const io::HfFolder& config) {
  const std::string& directory = config.directory();
  model::ModelSpec spec =
      model::read_model_spec(config.config(), join_path(directory, "config.json"));
  const bool is_whole = spec.mtp.empty() && model::names_dtype(config.config());
  if (is_whole || !has_weights(directory)) return {spec, false, spec};
  model::ModelSpec of_config = spec;
  const io::HfFolder folder = io::HfFolder::open(directory);
  model::drop_missing_mtp(spec, folder);
  model::take_stored_dtype(spec, folder);
  if (spec.num_missing_mtp == 0) of_config = spec;
  return {spec, true, of_config};
}

void print_counts(const Description& described) {
  const model::ParameterCounts counts = model::count_parameters(described.spec);
  print("parameters  {} ({}), {} active per token ({})\n", counts.total,
        format_count(static_cast<double>(counts.total)), counts.active,
        format_count(static_cast<double>(counts.active)));
  if (counts.correction_biases > 0)
    print("            {} without the routers' correction biases\n",
          counts.total - counts.correction_biases);
  if (!described.spec.mtp.empty() && !described.knows_copies)
    print(
        "            copies of embedding and head that MTP layers may have (DeepSeek-V3, GLM-4.5) "
        "are not counted, because config.json does not list them\n");
  for (const model::PartCount& part : counts.parts)
    print("  {:<24}{:>18}\n", part.name, part.elements);
}

void print_description(const Description& described,
                       const std::optional<model::Quantization>& quantization) {
  const model::ModelSpec& spec = described.spec;
  const std::string architecture =
      spec.architecture.empty() ? "" : fmt::format(" ({})", spec.architecture);
  print("family      {}{}, {}\n", spec.family, architecture,
        tensor::dtype_name(spec.checkpoint_dtype));
  if (quantization)
    print("on disk     FP8 (e4m3), {}; dequantised on load\n", quantization->describe());
  print("sizes       hidden {}, vocabulary {}, {} layers, {} positions\n", spec.hidden_size,
        spec.vocab_size, spec.num_layers(), spec.max_positions);
  print("norms       RMS, epsilon {}{}\n", spec.rms_norm_eps,
        spec.tied_embeddings ? "; embedding and head are tied" : "");
  print("rotary      {}\n", model::describe_rotary(spec));
  for (const std::string& line : model::describe_layers(spec)) print("{}\n", line);
  print_counts(described);
}

// For programs. MTP layers of config.json count in the total but are not listed in "layers".
void print_json(const model::ModelSpec& spec) {
  Json layers = Json::array();
  for (const model::LayerSpec& layer : spec.layers) {
    const model::LayerNames names = model::name_layer(layer);
    layers.push_back({{"attention", names.attention}, {"mlp", names.mlp}});
  }
  const model::ParameterCounts counts = model::count_parameters(spec);
  Json by_part = Json::object();
  for (const model::PartCount& part : counts.parts) by_part[part.name] = part.elements;
  const Json parameters = {
      {"total", counts.total}, {"active", counts.active}, {"by_part", by_part}};
  print("{}\n",
        Json{{"architecture", spec.architecture}, {"layers", layers}, {"parameters", parameters}}
            .dump(2));
}

}  // namespace

VerbBody declare_describe(CLI::App& app) {
  const auto directory = std::make_shared<std::string>();
  const auto as_json = std::make_shared<bool>(false);
  app.add_option("--hf-checkpoint", *directory, "Hugging Face folder; config.json is enough")
      ->type_name("DIR")
      ->required();
  app.add_flag("--json", *as_json, "Print layers and parameters as one JSON object");
  app.footer(
      "Examples:\n"
      "  slimexx describe --hf-checkpoint models/GLM-4.5-Air\n"
      "  slimexx describe --hf-checkpoint models/GLM-4.5-Air --json | jq .parameters.total");
  return [directory, as_json](Session& session) {
    if (!session.is_root()) return;
    const io::HfFolder config = io::HfFolder::open_without_weights(*directory);
    if (*as_json) return print_json(read_description(config).of_config);
    print_description(
        read_description(config),
        model::read_quantization(config.config(), join_path(*directory, "config.json")));
  };
}

}  // namespace slimexx::cli

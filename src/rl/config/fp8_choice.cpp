#include "slimexx/rl/fp8_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/model/families.h"
#include "slimexx/model/quantization.h"
#include "slimexx/rl/engine_shape.h"

namespace slimexx::rl {
namespace {

constexpr const char* kKey = "numerics.fp8";
constexpr const char* kRolloutOnly = "rollout_only";

bool has_fp8_blocks(const std::optional<model::Quantization>& folder) {
  const model::Encoding encoding;
  return folder && folder->kind == model::ScaleKind::kBlock &&
         folder->block_rows == encoding.block_rows &&
         folder->block_columns == encoding.block_columns;
}

// Whether the run computes in FP8.
bool is_on(const Fp8Choice& choice, const std::optional<model::Quantization>& folder,
           const std::string& directory) {
  const std::string& mode = choice.options.fp8;
  if (mode == "off") return false;
  if (mode == "auto") return has_fp8_blocks(folder);
  if (folder && !has_fp8_blocks(folder))
    throw Error(
        ErrorCode::kInput,
        fmt::format("the weights are FP8 with {}, but a run computes only with blocks of 128x128",
                    folder->describe()),
        "convert the bf16 folder: slimexx convert-hf --to fp8 --strategy block, or set "
        "numerics.fp8: off",
        join_path(directory, "config.json") + ": quantization_config");
  return true;
}

// The rule of the folder's scales; powers of two for a folder that is not quantised.
tensor::F8ScaleRule find_rule(const Fp8Choice& choice,
                              const std::optional<model::Quantization>& folder,
                              const Json& config) {
  const std::string& format = choice.options.fp8_scale_fmt;
  if (format == "float") return tensor::F8ScaleRule::kFloat;
  if (format == "ue8m0" || !folder) return tensor::F8ScaleRule::kPowerOfTwo;
  const Json& quantization = config.at("quantization_config");
  const auto named = quantization.find("scale_fmt");
  return named != quantization.end() && *named == "ue8m0" ? tensor::F8ScaleRule::kPowerOfTwo
                                                          : tensor::F8ScaleRule::kFloat;
}

// Weights of products that are not computed in FP8.
std::vector<std::string> list_plain(const model::ModelSpec& spec) {
  std::vector<std::string> names;
  for (const model::ParameterInfo& info : model::list_parameters(spec))
    if (info.is_linear && !info.encoding) names.push_back(info.name);
  return names;
}

}  // namespace

Fp8Choice make_fp8_choice(const RunConfig& config, Fp8Use use) {
  Fp8Choice choice{.options = config.numerics,
                   .sizes = grid_sizes(config.parallel),
                   .cache = config.rollout.kv_cache_dtype == "fp8_e4m3"};
  choice.sizes.tp = static_cast<int>(count_leaves(config.rollout, choice.sizes));
  std::string& mode = choice.options.fp8;
  if (mode == kRolloutOnly && use == Fp8Use::kGeneration) mode = "on";
  if (mode == kRolloutOnly && (use == Fp8Use::kScoring || !needs_engine(config))) mode = "off";
  return choice;
}

void choose_fp8(model::ModelSpec& spec, const Fp8Choice& choice, const Json& config,
                const std::string& directory) {
  if (choice.cache) model::set_fp8_cache(spec);
  const auto folder = model::read_quantization(config, join_path(directory, "config.json"));
  if (!is_on(choice, folder, directory)) return;
  model::choose_encoded(spec,
                        {.rule = find_rule(choice, folder, config),
                         .is_for_engines = choice.options.fp8 == kRolloutOnly},
                        choice.sizes);
  if (!spec.encoded.empty()) return;
  spec.encoding = nullptr;
  if (choice.options.fp8 == "auto") return;  // the load logs that the folder is dequantised
  throw Error(ErrorCode::kUsage,
              fmt::format("no matrix of {} can be FP8: a rank's rows and columns must be whole "
                          "blocks of 128x128 (hidden_size is {}, tensor parallelism {})",
                          directory, spec.hidden_size, choice.sizes.tp),
              "set it to off", kKey);
}

std::string describe_fp8(const model::ModelSpec& spec) {
  constexpr size_t kNamed = 4;
  const std::vector<std::string> plain = list_plain(spec);
  const char* rule = spec.encoding->rule == tensor::F8ScaleRule::kPowerOfTwo ? "ue8m0" : "float";
  std::string text = fmt::format("{}{} matrices in blocks of 128x128 with {} scales",
                                 spec.encoding->is_for_engines ? "in engines only, " : "",
                                 spec.encoded.size(), rule);
  if (plain.empty()) return text;
  const size_t named = std::min(kNamed, plain.size());
  return text +
         fmt::format("; {} are not FP8, because a rank does not hold whole blocks: {}{}",
                     plain.size(),
                     fmt::join(plain.begin(), plain.begin() + static_cast<long>(named), ", "),
                     plain.size() > named ? ", ..." : "");
}

void log_fp8(const model::ModelSpec& spec) {
  if (spec.encoding == nullptr) return;
  log_info("FP8: {}", describe_fp8(spec));
  if (spec.encoding->is_for_engines)
    log_warn(
        "numerics.fp8: rollout_only gives up exactness: engines sample from FP8 products, and "
        "training computes without FP8, so their log-probs differ. Importance sampling "
        "(rl.use_tis) corrects for the difference, which train/train_rollout_logprob_abs_diff and "
        "train/tis_abs measure. numerics.fp8: on has no difference");
}

Json fp8_identity(const model::ModelSpec& spec) {
  Json identity = {{"fp8", "off"}, {"kv_cache_dtype", spec.fp8_cache ? "fp8_e4m3" : "auto"}};
  if (spec.encoding == nullptr) return identity;
  identity["fp8"] = spec.encoding->is_for_engines ? kRolloutOnly : "on";
  identity["fp8_scale_fmt"] =
      spec.encoding->rule == tensor::F8ScaleRule::kPowerOfTwo ? "ue8m0" : "float";
  identity["not_fp8"] = list_plain(spec);
  return identity;
}

}  // namespace slimexx::rl

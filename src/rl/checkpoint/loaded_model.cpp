#include "slimexx/rl/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/dist/make_once.h"
#include "slimexx/io/tensor_list.h"
#include "slimexx/model/encoding.h"
#include "slimexx/model/freeze.h"
#include "slimexx/model/load_hf.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

using OpenFolder = io::HfFolder (*)(const std::string& directory);

// Calls `make` for a value that is the same on all ranks; the ranks of one process share it.
template <class Make>
auto make_for(const ModelRanks* ranks, const Make& make) {
  dist::Collective one;
  return dist::make_once(ranks != nullptr ? *ranks->host : one, make);
}

// Called before memory is taken for the weights.
void check_headers(const LoadedModel& m, const ModelRanks* ranks) {
  try {
    make_for(ranks, [&] {
      model::check_hf_headers(m.spec, *m.folder, m.layout);
      return true;
    });
  } catch (const Error&) {
    if (!path_exists(join_path(m.directory, "manifest.json"))) throw;
    throw Error(ErrorCode::kInput,
                "this is a checkpoint of a run, but a Hugging Face folder is needed",
                fmt::format("slimexx convert-hf --to hf --load {} --save NEW_FOLDER", m.directory),
                m.directory);
  }
}

void warn_of_end_tokens(const LoadedModel& m) {
  const io::HfFolder::EosTokens tokens = m.folder->eos_tokens();
  for (const int32_t id : tokens.ids)
    if (id >= m.spec.vocab_size)
      log_warn(
          "{}: \"eos_token_id\" holds {}, but the vocabulary has {} tokens, so it cannot end a "
          "sample",
          tokens.file, id, m.spec.vocab_size);
}

void log_rounded(const LoadedModel& m, tensor::DType compute_dtype) {
  const auto rounded = model::list_rounded(m.spec, *m.folder, compute_dtype);
  if (rounded.empty()) return;
  constexpr size_t kNamed = 4;
  const std::span named(rounded.data(), std::min(kNamed, rounded.size()));
  log_info(
      "weights that are not trained are rounded to {}, the compute dtype, and exported with the "
      "rounded values: {}{}",
      tensor::dtype_name(compute_dtype), fmt::join(named, ", "),
      rounded.size() > kNamed ? fmt::format(", ... ({} tensors)", rounded.size()) : "");
}

// Logs how the weights differ from config.json, and how an export will differ from the folder.
void log_deviations(const LoadedModel& m, tensor::Device device, bool is_trained) {
  if (m.rank != 0) return;
  warn_of_end_tokens(m);
  if (m.spec.num_missing_mtp > 0)
    log_info("config.json names {} MTP layers, but the weights in {} have {}",
             std::ssize(m.spec.mtp) + m.spec.num_missing_mtp, m.directory, m.spec.mtp.size());
  if (is_trained) log_rounded(m, tensor::compute_dtype(device));
}

void choose_use(LoadedModel& m, const ModelUse& use) {
  if (use.training != nullptr) choose_trained(m.spec, *use.training, m.directory);
  if (use.fp8 != nullptr) choose_fp8(m.spec, *use.fp8, m.folder->config(), m.directory);
}

LoadedModel describe_folder(const std::string& directory, OpenFolder open, const ModelRanks* ranks,
                            const ModelUse& use) {
  LoadedModel m;
  m.folder = make_for(ranks, [&] { return open(directory); });
  m.directory = m.folder->directory();
  m.spec = model::read_model_spec(m.folder->config(), join_path(m.directory, "config.json"));
  model::drop_missing_mtp(m.spec, *m.folder);
  model::take_stored_dtype(m.spec, *m.folder);
  choose_use(m, use);
  const bool moves_biases =
      use.training != nullptr && use.training->moe_router_bias_update_rate > 0;
  m.spec.kept_dtypes =
      *make_for(ranks, [&] { return model::list_kept_dtypes(m.spec, *m.folder, moves_biases); });
  m.eos_token_ids = m.folder->eos_token_ids();
  m.layout = *make_for(ranks, [&] { return make_model_layout(m.spec, ranks); });
  m.rank = ranks != nullptr ? ranks->rank : 0;
  if (m.folder->has_tensors()) check_headers(m, ranks);
  return m;
}

// Also makes the store, which is still empty.
LoadedModel prepare_model(const std::string& directory, OpenFolder open, tensor::Device device,
                          bool with_gradients, const ModelRanks* ranks, const ModelUse& use) {
  LoadedModel m = describe_folder(directory, open, ranks, use);
  m.store = std::make_unique<model::ParameterStore>(m.held_parameters(), device, with_gradients);
  return m;
}

void read_weights(model::ParameterStore& store, const LoadedModel& m, const ModelRanks* ranks,
                  const std::function<void(int64_t)>& on_loaded) {
  if (ranks == nullptr) {
    model::load_hf_weights(store, m.spec, *m.folder, on_loaded);
    return;
  }
  model::HostRanks host{*ranks->host, {}};
  for (const int rank : ranks->host_ranks)
    host.held.ranks.push_back(m.layout.ranks[static_cast<size_t>(rank)]);
  model::load_hf_weights(store, m.spec, *m.folder, on_loaded, &m.layout, host);
}

}  // namespace

void choose_trained(model::ModelSpec& spec, const train::TrainOptions& options,
                    const std::string& directory) {
  const int64_t num_layers = options.num_trained_mtp();
  if (num_layers > std::ssize(spec.mtp))
    throw Error(ErrorCode::kUsage,
                fmt::format("train.mtp_num_layers is {}, but {} has the weights of {} multi-token "
                            "prediction layers",
                            num_layers, directory, spec.mtp.size()),
                "lower it, turn off train.enable_mtp_training, or use the original checkpoint: "
                "exports of Hugging Face's libraries lack these layers",
                "train.mtp_num_layers");
  for (int64_t i = 0; i < num_layers; ++i) spec.mtp[static_cast<size_t>(i)].is_trained = true;
  if (!options.freeze_params_name_list.empty() || !options.only_train_params_name_list.empty())
    model::freeze_parameters(spec, options.freeze_params_name_list,
                             options.only_train_params_name_list);
}

const std::vector<model::ParameterInfo>& LoadedModel::held_parameters() const {
  return *layout.ranks[static_cast<size_t>(rank)];
}

LoadedModel load_model(const std::string& directory, tensor::Device device, bool with_gradients,
                       bool show_progress, const ModelRanks* ranks, const ModelUse& use) {
  observe::Span span("load_model");
  LoadedModel m = prepare_model(directory, io::HfFolder::open, device, with_gradients, ranks, use);
  observe::ProgressBar bar("loading weights", m.store->num_elements(), show_progress);
  read_weights(*m.store, m, ranks, [&](int64_t n) { bar.advance(n); });
  log_deviations(m, device, use.training != nullptr);
  log_debug("loaded {} ({}, {} parameters) in {}", directory, m.spec.family,
            format_count(static_cast<double>(m.store->num_elements())),
            format_duration(span.seconds()));
  return m;
}

LoadedModel load_checkpoint_model(const std::string& directory, const io::Checkpoint& checkpoint,
                                  tensor::Device device, const ModelRanks* ranks,
                                  const ModelUse& use) {
  observe::Span span("load_model");
  LoadedModel m;
  m.folder = make_for(ranks, [&] { return io::HfFolder::open_without_weights(directory); });
  m.directory = m.folder->directory();
  const std::string config = join_path(m.directory, "config.json");
  m.spec = model::read_model_spec(m.folder->config(), config);
  model::drop_missing_mtp(m.spec, [&](const std::string& name) {
    return checkpoint.find("master", name) != nullptr ||
           checkpoint.find("weights", name) != nullptr;
  });
  choose_use(m, use);
  m.eos_token_ids = m.folder->eos_token_ids();
  m.layout = *make_for(ranks, [&] { return make_model_layout(m.spec, ranks); });
  m.rank = ranks != nullptr ? ranks->rank : 0;
  m.store = std::make_unique<model::ParameterStore>(m.held_parameters(), device, false);
  model::load_exported_weights(*m.store, checkpoint,
                               io::dtype_of_config(m.folder->config(), config));
  log_deviations(m, device, false);
  return m;
}

LoadedModel make_random_model(const std::string& directory, tensor::Device device,
                              bool with_gradients, uint64_t seed, const ModelRanks* ranks,
                              const ModelUse& use) {
  observe::Span span("load_model");
  LoadedModel m = prepare_model(directory, io::HfFolder::open_without_weights, device,
                                with_gradients, ranks, use);
  model::init_random_weights(*m.store, m.spec, seed, /*spread_tokens=*/true);
  log_debug("{} random parameters ({}) in {}",
            format_count(static_cast<double>(m.store->num_elements())), m.spec.family,
            format_duration(span.seconds()));
  return m;
}

LoadedModel describe_model(const std::string& directory, const ModelRanks* ranks, bool has_weights,
                           const ModelUse& use) {
  return describe_folder(
      directory, has_weights ? io::HfFolder::open : io::HfFolder::open_without_weights, ranks, use);
}

std::unique_ptr<model::ParameterStore> load_weights(const LoadedModel& described,
                                                    tensor::Tensor memory,
                                                    const ModelRanks* ranks) {
  auto store = std::make_unique<model::ParameterStore>(described.held_parameters(), memory);
  read_weights(*store, described, ranks, {});
  return store;
}

void encode_weights(const model::ParameterStore& store, tensor::Device device) {
  tensor::Arena no_scratch(device, 0, "encoded weights");
  model::encode_weights(ops::compute_context(no_scratch), store);
}

void check_stop_tokens(const std::vector<int64_t>& ids, int64_t vocab_size, const char* key) {
  for (const int64_t id : ids) {
    if (id < vocab_size) continue;
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} holds {}, but the model's vocabulary has {} tokens", key, id, vocab_size),
        "use token ids of this model's tokenizer", key);
  }
}

std::vector<int32_t> join_stop_tokens(std::vector<int32_t> ids, int64_t vocab_size,
                                      const std::vector<int64_t>& more, const char* key) {
  check_stop_tokens(more, vocab_size, key);
  for (const int64_t id : more) ids.push_back(static_cast<int32_t>(id));
  return ids;
}

TextSide load_text_side(const std::string& directory) {
  TextSide side;
  if (path_exists(join_path(directory, "tokenizer.json"))) {
    side.tokenizer = std::make_unique<text::Tokenizer>(text::Tokenizer::load(directory));
  }
  side.chat_template = text::ChatTemplate::find(directory);
  return side;
}

tensor::Device select_device(const std::string& name, int local_rank) {
  const bool takes_cuda = name.empty() && tensor::count_cuda_devices() > 0;
  if (name == "cpu" || (name.empty() && !takes_cuda)) return {};
  if (!takes_cuda && name != "cuda")
    throw Error(ErrorCode::kUsage, "unknown device \"" + name + "\"", "use cpu or cuda",
                "--device");
  const tensor::Device device{tensor::DeviceType::kCuda, local_rank};
  tensor::select_device(device);
  return device;
}

}  // namespace slimexx::rl

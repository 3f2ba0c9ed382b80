#include "slimexx/rl/loaded_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/model/boxes.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

LoadedModel describe_folder(io::HfFolder folder) {
  LoadedModel m;
  m.directory = folder.directory();
  m.folder = std::make_unique<io::HfFolder>(std::move(folder));
  m.spec = model::read_model_spec(m.folder->config(), join_path(m.directory, "config.json"));
  m.eos_token_ids = m.folder->eos_token_ids();
  return m;
}

// With a store, which holds nothing yet.
LoadedModel prepare_model(io::HfFolder folder, tensor::Device device, bool with_gradients) {
  LoadedModel m = describe_folder(std::move(folder));
  m.store = std::make_unique<model::ParameterStore>(m.spec, device, with_gradients);
  return m;
}

// A folder's path as its parent lists it.
std::filesystem::path without_slash(const std::string& directory) {
  const auto folder = std::filesystem::path(directory).lexically_normal();
  return folder.has_filename() ? folder : folder.parent_path();
}

}  // namespace

LoadedModel load_model(const std::string& directory, tensor::Device device, bool with_gradients,
                       bool show_progress) {
  observe::Span span("load_model");
  LoadedModel m = prepare_model(io::HfFolder::open(directory), device, with_gradients);
  observe::ProgressBar bar("loading weights", m.store->num_elements(), show_progress);
  try {
    model::load_hf_weights(*m.store, m.spec, *m.folder, [&](int64_t n) { bar.advance(n); });
  } catch (const Error&) {
    if (!path_exists(join_path(directory, "manifest.json"))) throw;
    throw Error(ErrorCode::kInput, "a checkpoint of a run, where a Hugging Face folder is wanted",
                fmt::format("slimexx convert-hf --to hf --load {} --save NEW_FOLDER", directory),
                directory);
  }
  log_debug("loaded {} ({}, {} parameters) in {}", directory, m.spec.family,
            format_count(static_cast<double>(m.store->num_elements())),
            format_duration(span.seconds()));
  return m;
}

LoadedModel make_random_model(const std::string& directory, tensor::Device device,
                              bool with_gradients, uint64_t seed) {
  observe::Span span("load_model");
  LoadedModel m =
      prepare_model(io::HfFolder::open_without_weights(directory), device, with_gradients);
  model::init_random_weights(*m.store, m.spec, seed);
  log_debug("{} random parameters ({}) in {}",
            format_count(static_cast<double>(m.store->num_elements())), m.spec.family,
            format_duration(span.seconds()));
  return m;
}

LoadedModel describe_model(const std::string& directory) {
  return describe_folder(io::HfFolder::open(directory));
}

std::unique_ptr<model::ParameterStore> load_weights(const LoadedModel& described,
                                                    tensor::Tensor memory) {
  auto store = std::make_unique<model::ParameterStore>(described.spec, memory);
  model::load_hf_weights(*store, described.spec, *described.folder);
  return store;
}

TextSide load_text_side(const std::string& directory) {
  TextSide side;
  if (path_exists(join_path(directory, "tokenizer.json"))) {
    side.tokenizer = std::make_unique<text::Tokenizer>(text::Tokenizer::load(directory));
  }
  const bool has_template =
      path_exists(join_path(directory, "chat_template.jinja")) ||
      (path_exists(join_path(directory, "tokenizer_config.json")) &&
       parse_json_file(join_path(directory, "tokenizer_config.json")).contains("chat_template"));
  if (has_template)
    side.chat_template = std::make_unique<text::ChatTemplate>(text::ChatTemplate::load(directory));
  return side;
}

namespace {

std::vector<io::HfTensor> list_export_tensors(const model::ParameterStore& store,
                                              const model::ModelSpec& spec) {
  std::vector<io::HfTensor> tensors;
  for (model::TensorSource& source : model::list_tensor_sources(store.infos())) {
    const auto shared = std::make_shared<const model::TensorSource>(std::move(source));
    tensors.push_back(
        {shared->name, spec.checkpoint_dtype, shared->shape,
         [&store, shared, dtype = spec.checkpoint_dtype](int64_t begin, int64_t end, void* out) {
           std::vector<float> values(static_cast<size_t>(end - begin));
           model::read_tensor(store, *shared, begin, end, values.data());
           tensor::convert_elements(tensor::DType::kF32, values.data(), dtype, out, end - begin);
         }});
  }
  return tensors;
}

// A folder that is still to be made whole; it goes again unless it was renamed.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(std::string path) : path_(std::move(path)) {
    std::filesystem::remove_all(path_);
  }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int64_t num_elements(const io::HfTensor& tensor) {
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

void export_hf(const model::ParameterStore& store, const model::ModelSpec& spec,
               const std::string& template_directory, const std::string& directory) {
  // Beside the target first: an earlier export stays whole until the new one is.
  const std::string target = without_slash(directory).string();
  const UnfinishedFolder fresh(target + ".new");
  io::write_hf_folder(fresh.path(), list_export_tensors(store, spec),
                      {.template_directory = template_directory, .shards = {}});
  std::filesystem::remove_all(target);
  std::filesystem::rename(fresh.path(), target);
}

void try_export(const model::ParameterStore& store, const model::ModelSpec& spec,
                const std::string& template_directory, const std::string& directory) {
  std::vector<io::HfTensor> tensors = list_export_tensors(store, spec);
  const auto smallest = std::ranges::min_element(tensors, {}, num_elements);
  const UnfinishedFolder trial(without_slash(directory).string() + ".try");
  io::write_hf_folder(trial.path(), {*smallest},
                      {.template_directory = template_directory, .shards = {}});
}

// An export replaces the folder as a whole, so nothing may stand there that it would not write
// again.
void check_export_target(const std::string& directory) {
  namespace fs = std::filesystem;
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUsage, what, "name a new folder", directory);
  };
  const fs::path folder = without_slash(directory);
  fs::path above = fs::absolute(folder).parent_path();
  std::error_code error;
  while (!fs::exists(above, error) && above.has_relative_path()) above = above.parent_path();
  if (::access(above.c_str(), W_OK | X_OK) != 0) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("cannot write the export: {}: {}", above.string(), std::strerror(errno)),
        "name a folder elsewhere", directory);
  }
  if (!fs::exists(folder, error)) return;
  if (!fs::is_directory(folder)) refuse("the target of the export is a file");
  if (fs::is_empty(folder)) return;
  bool has_weights = false;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || entry.is_symlink())
      refuse(fmt::format("the target of the export holds \"{}\", which it would remove", name));
    has_weights |= name.ends_with(".safetensors");
  }
  if (!has_weights || !fs::exists(folder / "config.json"))
    refuse("the target of the export is neither empty nor a Hugging Face folder");
}

tensor::Device select_device(const std::string& name, int local_rank) {
  const bool takes_cuda = name.empty() && tensor::count_cuda_devices() > 0;
  if (name == "cpu" || (name.empty() && !takes_cuda)) return {};
  if (!takes_cuda && name != "cuda")
    throw Error(ErrorCode::kUsage, "unknown device \"" + name + "\"", "cpu or cuda", "--device");
  const tensor::Device device{tensor::DeviceType::kCuda, local_rank};
  tensor::select_device(device);
  return device;
}

}  // namespace slimexx::rl

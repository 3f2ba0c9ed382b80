#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/folder_files.h"
#include "io/hf_index.h"
#include "io/quote_name.h"
#include "io/safetensors/safetensors_header.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/hf_folder_writer.h"
#include "slimexx/io/tensor_list.h"

namespace slimexx::io {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;

// The files that model loading reads. It is an error if an entry with one of these names is not a
// file.
constexpr std::array kLoadedNames{"config.json", "generation_config.json", "tokenizer.json",
                                  "tokenizer_config.json", "chat_template.jinja"};

constexpr const char* kTemplateFolder = "additional_chat_templates";
constexpr const char* kQuantizationKey = "quantization_config";

int64_t tensor_bytes(const HfTensor& t) { return num_elements(t) * tensor::dtype_bytes(t.dtype); }

using Plan = std::map<std::string, std::vector<const HfTensor*>>;  // file name -> tensors

Plan plan_as_given(const std::vector<HfTensor>& tensors,
                   const std::map<std::string, std::string>& shards, const std::string& directory) {
  Plan plan;
  for (const HfTensor& t : tensors) {
    const auto it = shards.find(t.name);
    if (it == shards.end() || !is_plain_file_name(it->second) ||
        !it->second.ends_with(".safetensors")) {
      throw Error(ErrorCode::kInput,
                  fmt::format("there is no shard file for tensor {}", quote_name(t.name)),
                  "shard files are named NAME.safetensors, one for each tensor", directory);
    }
    plan[it->second].push_back(&t);
  }
  return plan;
}

// Keeps the given order and starts a new file when the next tensor would exceed the limit.
Plan plan_by_size(const std::vector<HfTensor>& tensors, int64_t max_bytes) {
  std::vector<std::vector<const HfTensor*>> shards(1);
  int64_t filled = 0;
  for (const HfTensor& t : tensors) {
    const int64_t bytes = tensor_bytes(t);
    if (!shards.back().empty() && filled + bytes > max_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(&t);
    filled += bytes;
  }
  Plan plan;
  for (size_t i = 0; i < shards.size(); ++i) {
    plan[shards.size() == 1
             ? kHfSingleName
             : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size())] = shards[i];
  }
  return plan;
}

void check_target(const std::string& directory, const std::string& template_directory) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUsage, what, "choose a new folder", directory);
  };
  if (!template_directory.empty() && is_same_directory(directory, template_directory)) {
    refuse("the output folder is the input folder");
  }
  if (!path_exists(directory)) return;
  for (const std::string& name : list_files(directory)) {
    // A mix of old and new shards would not load as either model.
    if (name.ends_with(".safetensors") || name == kHfIndexName) {
      refuse(fmt::format("the folder already holds weights ({})", name));
    }
  }
}

void write_config(const std::string& directory, const HfWriteOptions& options) {
  const std::string path = join_path(options.template_directory, "config.json");
  Json config = parse_json_file(path);
  if (!config.is_object()) {
    throw Error(ErrorCode::kInput, "config.json must hold a JSON object",
                "download it again from the model's publisher", path);
  }
  const bool is_quantised = options.drops_quantization && config.contains(kQuantizationKey);
  if (!options.config_overrides && !is_quantised) return;  // the copy stays verbatim
  if (is_quantised) config.erase(kQuantizationKey);
  if (options.config_overrides)
    for (const auto& [key, value] : options.config_overrides->items()) config[key] = value;
  write_file_atomic(join_path(directory, "config.json"), config.dump(2) + "\n");
}

}  // namespace

HfFolderWriter::HfFolderWriter(std::string directory, const std::vector<HfTensor>& tensors,
                               HfWriteOptions options)
    : directory_(std::move(directory)), options_(std::move(options)) {
  const Plan plan = options_.shards.empty() ? plan_by_size(tensors, options_.max_shard_bytes)
                                            : plan_as_given(tensors, options_.shards, directory_);
  for (const auto& [name, members] : plan) {
    File file{.name = name, .header = {}, .entries = {}};
    for (const HfTensor* t : members) file.entries.push_back({t->name, t->dtype, t->shape});
    sort_entries(file.entries);
    file.header =
        render_safetensors_header(file.entries, {{"format", "pt"}}, join_path(directory_, name));
    for (size_t i = 0; i < file.entries.size(); ++i)
      SLX_CHECK(places_.emplace(file.entries[i].name, Place{files_.size(), i}).second,
                "tensor {} is listed twice", file.entries[i].name);
    files_.push_back(std::move(file));
  }
}

HfFolderWriter::~HfFolderWriter() {
  std::error_code ignored;
  for (const File& file : files_)
    if (is_creator_) std::filesystem::remove(path_of(file), ignored);
}

// A temporary name: no loader reads such a file, and it is not copied as a side file.
std::string HfFolderWriter::path_of(const File& file) const {
  return join_path(directory_, file.name + ".incomplete");
}

void HfFolderWriter::create() {
  check_target(directory_, options_.template_directory);
  make_directories(directory_);
  is_creator_ = true;
  for (const File& file : files_) {
    const uint64_t data_bytes = file.entries.empty() ? 0 : file.entries.back().end;
    FilledFile::create(path_of(file), file.header.size() + data_bytes);
    FilledFile(path_of(file)).write_at(0, file.header.data(), file.header.size());
  }
}

void HfFolderWriter::write(const std::string& tensor, int64_t begin, int64_t end,
                           const void* data) {
  const auto place = places_.find(tensor);
  SLX_CHECK(place != places_.end(), "{}", tensor);
  File& file = files_[place->second.file];
  const TensorEntry& entry = file.entries[place->second.entry];
  SLX_CHECK(0 <= begin && begin <= end && end <= entry.num_elements(),
            "elements [{}, {}) are not in tensor {}", begin, end, tensor);
  if (!file.open) file.open = std::make_unique<FilledFile>(path_of(file));
  const auto width = static_cast<uint64_t>(tensor::dtype_bytes(entry.dtype));
  const uint64_t n = static_cast<uint64_t>(end - begin) * width;
  file.open->write_at(file.header.size() + entry.begin + static_cast<uint64_t>(begin) * width, data,
                      n);
  written_bytes_ += n;
}

void HfFolderWriter::flush() {
  for (File& file : files_) {
    if (!file.open) continue;
    file.open->flush();
    file.open.reset();
  }
}

void HfFolderWriter::commit(uint64_t written_by_all) {
  HfIndex index;
  index.total_bytes = 0;
  for (const File& file : files_) {
    for (const TensorEntry& entry : file.entries) {
      index.file_of[entry.name] = file.name;
      *index.total_bytes += static_cast<int64_t>(entry.end - entry.begin);
    }
  }
  if (written_by_all != static_cast<uint64_t>(*index.total_bytes)) {
    throw Error(ErrorCode::kRun,
                fmt::format("only {} of {} bytes of tensors were written", written_by_all,
                            *index.total_bytes),
                "", directory_);
  }
  for (const File& file : files_) {
    FilledFile(path_of(file)).flush();  // perhaps only the header
    FilledFile::rename(path_of(file), join_path(directory_, file.name));
  }
  is_creator_ = false;
  if (files_.size() != 1 || files_[0].name != kHfSingleName)
    write_file_atomic(join_path(directory_, kHfIndexName), render_hf_index(index));
  if (options_.template_directory.empty()) return;
  copy_side_files(options_.template_directory, directory_);
  if (options_.config_overrides || options_.drops_quantization) write_config(directory_, options_);
}

void write_share(HfFolderWriter& writer, const std::vector<HfTensor>& tensors, int index,
                 int count) {
  std::vector<char> buffer;
  for (const HfTensor& t : tensors) {
    const int64_t width = tensor::dtype_bytes(t.dtype), step = kChunkBytes / width;
    const int64_t n = num_elements(t), stop = n * (index + 1) / count;
    for (int64_t begin = n * index / count; begin < stop; begin += step) {
      const int64_t end = std::min(stop, begin + step);
      buffer.resize(static_cast<size_t>((end - begin) * width));
      t.read(begin, end, buffer.data());
      writer.write(t.name, begin, end, buffer.data());
    }
  }
}

void write_hf_folder(const std::string& directory, const std::vector<HfTensor>& tensors,
                     const HfWriteOptions& options) {
  HfFolderWriter writer(directory, tensors, options);
  writer.create();
  write_share(writer, tensors, 0, 1);
  writer.flush();
  writer.commit(writer.written_bytes());
}

namespace {

// Copies the named chat templates.
void copy_named_templates(const std::string& from, const std::string& to) {
  const std::string folder = join_path(from, kTemplateFolder);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return;
  make_directories(join_path(to, kTemplateFolder));
  for (const std::string& name : list_files(folder))
    if (name.ends_with(".jinja"))
      copy_file_contents(join_path(folder, name), join_path(join_path(to, kTemplateFolder), name));
}

}  // namespace

void copy_side_files(const std::string& from, const std::string& to) {
  make_directories(to);
  if (is_same_directory(from, to)) return;
  for (const char* name : kLoadedNames) {
    std::error_code ignored;
    const std::string path = join_path(from, name);
    if (path_exists(path) && !std::filesystem::is_regular_file(path, ignored)) {
      throw Error(ErrorCode::kInput,
                  "this is not a regular file, but the model's file of this name is needed",
                  "replace it by the file, or remove it", path);
    }
  }
  for (const std::string& name : list_files(from)) {
    if (is_side_file_name(name)) copy_file_contents(join_path(from, name), join_path(to, name));
    if (!is_valid_utf8(name)) {
      log_warn("{}: not copied, because its name is not UTF-8 and a checkpoint cannot list it",
               join_path(from, name));
    }
  }
  copy_named_templates(from, to);
}

}  // namespace slimexx::io

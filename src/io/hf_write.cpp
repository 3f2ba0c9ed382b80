#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "io/folder_files.h"
#include "io/hf_index.h"
#include "io/quote_name.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {
namespace {

constexpr int64_t kChunkBytes = int64_t{8} << 20;

// The files that loading a model reads. Something else under such a name is an error, not ignored.
constexpr std::array kLoadedNames{"config.json", "generation_config.json", "tokenizer.json",
                                  "tokenizer_config.json", "chat_template.jinja"};

int64_t tensor_bytes(const HfTensor& t) {
  int64_t n = tensor::dtype_bytes(t.dtype);
  for (const int64_t d : t.shape) n *= d;
  return n;
}

using Plan = std::map<std::string, std::vector<const HfTensor*>>;  // file name -> tensors

Plan plan_as_given(const std::vector<HfTensor>& tensors,
                   const std::map<std::string, std::string>& shards, const std::string& directory) {
  Plan plan;
  for (const HfTensor& t : tensors) {
    const auto it = shards.find(t.name);
    if (it == shards.end() || !is_plain_file_name(it->second) ||
        !it->second.ends_with(".safetensors")) {
      throw Error(ErrorCode::kInput,
                  fmt::format("no shard file is given for tensor {}", quote_name(t.name)),
                  "shard files are named NAME.safetensors, one for each tensor", directory);
    }
    plan[it->second].push_back(&t);
  }
  return plan;
}

// In the given order, a new file whenever the next tensor would pass the limit.
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

void write_one_file(const std::string& path, const std::vector<const HfTensor*>& tensors) {
  std::vector<TensorEntry> entries;
  std::map<std::string, const HfTensor*> by_name;
  for (const HfTensor* t : tensors) {
    entries.push_back({t->name, t->dtype, t->shape});
    by_name[t->name] = t;
  }
  sort_entries(entries);
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  std::vector<char> buffer;
  for (const TensorEntry& e : entries) {
    const int64_t width = tensor::dtype_bytes(e.dtype), n = e.num_elements();
    const int64_t step = kChunkBytes / width;
    buffer.resize(
        static_cast<size_t>(std::max<int64_t>(int64_t(buffer.size()), std::min(n, step) * width)));
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t end = std::min(n, begin + step);
      by_name[e.name]->read(begin, end, buffer.data());
      writer.write(buffer.data(), static_cast<uint64_t>((end - begin) * width));
    }
  }
  writer.finish();
}

void check_target(const std::string& directory, const std::string& template_directory) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kUsage, what, "choose a new folder", directory);
  };
  if (!template_directory.empty() && is_same_directory(directory, template_directory)) {
    refuse("the folder to write is the folder that is read");
  }
  if (!path_exists(directory)) return;
  for (const std::string& name : list_files(directory)) {
    // Old shards beside new ones would make a folder that loads as neither.
    if (name.ends_with(".safetensors") || name == kHfIndexName) {
      refuse(fmt::format("the folder already holds weights ({})", name));
    }
  }
}

void write_index(const std::string& directory, const Plan& plan) {
  HfIndex index;
  index.total_bytes = 0;
  for (const auto& [file, tensors] : plan) {
    for (const HfTensor* t : tensors) {
      index.file_of[t->name] = file;
      *index.total_bytes += tensor_bytes(*t);
    }
  }
  write_file_atomic(join_path(directory, kHfIndexName), render_hf_index(index));
}

void write_config(const std::string& directory, const HfWriteOptions& options) {
  const std::string path = join_path(options.template_directory, "config.json");
  Json config = parse_json_file(path);
  if (!config.is_object()) {
    throw Error(ErrorCode::kInput, "config.json must hold a JSON object",
                "take it from the model's publisher again", path);
  }
  for (const auto& [key, value] : options.config_overrides->items()) config[key] = value;
  write_file_atomic(join_path(directory, "config.json"), config.dump(2) + "\n");
}

}  // namespace

void write_hf_folder(const std::string& directory, const std::vector<HfTensor>& tensors,
                     const HfWriteOptions& options) {
  std::set<std::string_view> names;
  for (const HfTensor& t : tensors)
    SLX_CHECK(names.insert(t.name).second, "tensor {} twice", t.name);
  check_target(directory, options.template_directory);
  const Plan plan = options.shards.empty() ? plan_by_size(tensors, options.max_shard_bytes)
                                           : plan_as_given(tensors, options.shards, directory);
  make_directories(directory);
  for (const auto& [file, members] : plan) write_one_file(join_path(directory, file), members);
  const bool single = plan.size() == 1 && plan.begin()->first == kHfSingleName;
  if (!single) write_index(directory, plan);
  if (options.template_directory.empty()) return;
  copy_side_files(options.template_directory, directory);
  if (options.config_overrides) write_config(directory, options);
}

void copy_side_files(const std::string& from, const std::string& to) {
  make_directories(to);
  if (is_same_directory(from, to)) return;
  for (const char* name : kLoadedNames) {
    std::error_code ignored;
    const std::string path = join_path(from, name);
    if (path_exists(path) && !std::filesystem::is_regular_file(path, ignored)) {
      throw Error(ErrorCode::kInput,
                  "not a regular file, where the model's file of this name is read",
                  "put the file there, or take this away", path);
    }
  }
  for (const std::string& name : list_files(from)) {
    if (is_side_file_name(name)) copy_file_contents(join_path(from, name), join_path(to, name));
    if (!is_valid_utf8(name)) {
      log_warn("{}: not copied: the name is not UTF-8, and a checkpoint cannot list it",
               join_path(from, name));
    }
  }
}

}  // namespace slimexx::io

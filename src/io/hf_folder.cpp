#include "slimexx/io/hf_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "io/folder_files.h"
#include "io/hf_index.h"
#include "io/quote_name.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/hub_names.h"

namespace slimexx::io {
namespace {

constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
// The file with the MTP layers (GLM-4.6). Some indices do not list it.
constexpr const char* kMtpName = "mtp.safetensors";
constexpr int64_t kCompareBytes = int64_t{4} << 20;

[[noreturn]] void fail(const std::string& where, const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::kInput, what, hint, where);
}

// model-00002-of-00005.safetensors is {stem, 2, 5}.
struct ShardName {
  std::string stem;
  long number = 0, count = 0;
};
std::optional<ShardName> parse_shard_name(const std::string& name) {
  const auto of = name.rfind("-of-");
  const auto dash = of == std::string::npos || of == 0 ? of : name.rfind('-', of - 1);
  if (of == std::string::npos || dash == std::string::npos) return std::nullopt;
  const std::string number = name.substr(dash + 1, of - dash - 1);
  const std::string count = name.substr(of + 4, name.find('.', of) - of - 4);
  for (const std::string& s : {number, count}) {
    if (s.empty() || s.size() > 9 || s.find_first_not_of("0123456789") != std::string::npos) {
      return std::nullopt;
    }
  }
  return ShardName{name.substr(0, dash), std::stol(number), std::stol(count)};
}

// Without an index, only this check notices a missing numbered shard.
void check_shards_complete(const std::string& directory, const std::vector<std::string>& names) {
  std::map<std::string, std::pair<long, long>> seen;  // stem -> files found, files promised
  for (const std::string& name : names) {
    const auto shard = parse_shard_name(name);
    if (!shard) continue;
    auto& [found, promised] = seen[shard->stem];
    ++found;
    promised = std::max(promised, shard->count);
  }
  for (const auto& [stem, counts] : seen) {
    if (counts.first < counts.second) {
      fail(directory,
           fmt::format("only {} of {} shards {}-*.safetensors exist, and there is no {}",
                       counts.first, counts.second, stem, kHfIndexName),
           "fetch the missing files");
    }
  }
}

// Refuses *.safetensors entries that are not regular files; the error names their kind.
void refuse_other_kinds(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".safetensors" || entry.is_regular_file(error)) continue;
    const bool is_dangling = entry.is_symlink(error) && !entry.exists(error);
    fail(entry.path().string(),
         fmt::format("{}, but a file with weights is needed",
                     entry.is_directory(error) ? "this is a folder"
                     : is_dangling             ? "this is a broken link"
                                               : "this is a pipe, a socket or a device"),
         "replace it by the file itself");
  }
}

std::vector<std::string> find_shards(const std::string& directory) {
  std::vector<std::string> shards;
  bool other_weights = false;
  for (const std::string& name : list_files(directory)) {
    if (name.ends_with(".safetensors")) shards.push_back(name);
    if (name.ends_with(".safetensors") && !is_valid_utf8(name)) {
      fail(join_path(directory, name), "the name of this weights file is not UTF-8", "rename it");
    }
    other_weights |= name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth");
  }
  if (shards.empty()) {
    refuse_other_kinds(directory);
    fail(directory, "the folder holds no .safetensors file",
         other_weights ? "convert the PyTorch pickle files to safetensors first"
                       : "check that the download is complete; `slimexx plan` checks a "
                         "configuration without weights");
  }
  // As in transformers, model.safetensors is preferred to files for other programs
  // (consolidated.safetensors).
  if (std::ranges::find(shards, kHfSingleName) != shards.end()) {
    std::erase_if(shards,
                  [](const auto& name) { return name != kHfSingleName && name != kMtpName; });
    return shards;
  }
  check_shards_complete(directory, shards);
  return shards;
}

Json read_config(const std::string& directory) {
  const std::string path = join_path(directory, "config.json");
  if (!path_exists(directory)) fail(directory, "no such folder", missing_model_hint(directory));
  if (!std::filesystem::is_directory(directory))
    fail(directory, "not a folder", "give the folder that holds config.json");
  if (!path_exists(path)) {
    fail(directory, "the folder has no config.json", "give a Hugging Face folder");
  }
  Json config = parse_json_file(path, kMaxConfigBytes);
  if (!config.is_object()) {
    fail(path, "config.json must hold a JSON object",
         "download it again from the model's publisher");
  }
  return config;
}

std::unique_ptr<SafetensorsFile> open_shard(const std::string& directory, const std::string& name) {
  auto file = std::make_unique<SafetensorsFile>(join_path(directory, name));
  if (!file->unsupported().empty()) {
    const auto& [tensor, dtype] = *file->unsupported().begin();
    fail(file->path(),
         fmt::format("tensor {} has dtype {}, which this program does not read", quote_name(tensor),
                     dtype),
         "convert the model to BF16, F16 or F32 first");
  }
  return file;
}

void check_index(const HfIndex& index, const std::string& index_path,
                 const std::map<std::string, HfFolder::Located>& tensors) {
  int64_t total = 0;
  for (const auto& [name, file] : index.file_of) {
    const auto it = tensors.find(name);
    const std::string held =
        it == tensors.end() ? ""
                            : std::filesystem::path(it->second.file->path()).filename().string();
    if (held != file) {
      fail(index_path,
           fmt::format("weight_map maps tensor {} to {}, {}", quote_name(name), file,
                       held.empty() ? "which does not hold it" : "but it is in " + held),
           "the index and the shards are of different versions: fetch both again");
    }
  }
  for (const auto& [name, located] : tensors) {
    total += static_cast<int64_t>(located.entry->end - located.entry->begin);
    if (!index.file_of.contains(name)) {
      log_warn("{}: tensor {} of {} is not in the index, but is used", index_path, quote_name(name),
               located.file->path());
    }
  }
  if (index.total_bytes && *index.total_bytes != total) {
    log_warn("{}: total_size is {}, but the tensors take {} bytes", index_path, *index.total_bytes,
             total);
  }
}

// A folder may have both a single-file and a sharded copy if they agree.
void check_single_agrees(const std::string& directory,
                         const std::map<std::string, HfFolder::Located>& tensors) {
  const SafetensorsFile single(join_path(directory, kHfSingleName));
  const auto differ = [&](const std::string& what) {
    fail(directory,
         fmt::format("{} and {} both exist and disagree: {}", kHfSingleName, kHfIndexName, what),
         "remove the one that is out of date");
  };
  if (single.entries().size() != tensors.size() || !single.unsupported().empty()) {
    differ(fmt::format("{} tensors against {}", single.entries().size(), tensors.size()));
  }
  std::vector<char> a, b;
  for (const auto& [name, located] : tensors) {
    const TensorEntry* other = single.find(name);
    const TensorEntry& mine = *located.entry;
    if (!other || other->dtype != mine.dtype || other->shape != mine.shape) {
      differ("tensor " + quote_name(name));
    }
    const int64_t step = kCompareBytes / tensor::dtype_bytes(mine.dtype);
    for (int64_t at = 0, n = mine.num_elements(); at < n; at += step) {
      const int64_t end = std::min(n, at + step);
      const auto bytes = static_cast<size_t>((end - at) * tensor::dtype_bytes(mine.dtype));
      a.resize(bytes);
      b.resize(bytes);
      located.file->read(mine, at, end, a.data());
      single.read(*other, at, end, b.data());
      if (std::memcmp(a.data(), b.data(), bytes) != 0)
        differ("values of tensor " + quote_name(name));
    }
  }
}

bool append_eos_ids(const Json& object, const std::string& where, std::vector<int32_t>& ids) {
  const auto it = object.find("eos_token_id");
  if (it == object.end() || it->is_null()) return false;
  const Json list = it->is_array() ? *it : Json::array({*it});
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      fail(where,
           fmt::format("key \"eos_token_id\" must be a token id or a list of them, not {}",
                       id.dump(-1, ' ', true).substr(0, 40)),
           "write the ids of the tokens that end generation");
    }
    ids.push_back(static_cast<int32_t>(id.get<int64_t>()));
  }
  return !ids.empty();
}

}  // namespace

HfFolder HfFolder::open(const std::string& directory) {
  HfFolder folder;
  folder.directory_ = directory;
  folder.config_ = std::make_shared<Json>(read_config(directory));
  const std::string index_path = join_path(directory, kHfIndexName);
  std::optional<HfIndex> index;
  if (path_exists(index_path)) {
    index = parse_hf_index(read_text_file(index_path, kMaxIndexBytes), index_path);
  }
  for (const std::string& name : index ? index->files() : find_shards(directory)) {
    if (index && !path_exists(join_path(directory, name))) {
      fail(index_path, fmt::format("the index lists {}, which is not in the folder", name),
           "fetch the missing file");
    }
    folder.add_shard(name);
  }
  if (index) {
    check_index(*index, index_path, folder.shards_->tensors);
    const auto files = index->files();
    if (std::ranges::find(files, kHfSingleName) == files.end() &&
        path_exists(join_path(directory, kHfSingleName))) {
      check_single_agrees(directory, folder.shards_->tensors);
    }
    // Added after the checks against the index, because the index does not list this file.
    if (std::ranges::find(files, kMtpName) == files.end() &&
        path_exists(join_path(directory, kMtpName))) {
      log_info("{}: {} is not in the index, but its tensors are read too", index_path, kMtpName);
      folder.add_shard(kMtpName);
    }
  }
  return folder;
}

void HfFolder::add_shard(const std::string& name) {
  auto& [files, tensors] = *shards_;
  files.push_back(open_shard(directory_, name));
  const SafetensorsFile* file = files.back().get();
  for (const TensorEntry& entry : file->entries()) {
    const auto [it, added] = tensors.emplace(entry.name, Located{file, &entry});
    if (added) continue;
    fail(directory_,
         fmt::format("tensor {} is in two shards: {} and {}", quote_name(entry.name),
                     it->second.file->path(), file->path()),
         "remove the shard that does not belong to this model");
  }
}

HfFolder HfFolder::open_without_weights(const std::string& directory) {
  HfFolder folder;
  folder.directory_ = directory;
  folder.config_ = std::make_shared<Json>(read_config(directory));
  return folder;
}

std::vector<std::string> HfFolder::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(shards_->tensors.size());
  for (const auto& [name, located] : shards_->tensors) names.push_back(name);
  return names;
}

const HfFolder::Located* HfFolder::find(const std::string& name) const {
  const auto it = shards_->tensors.find(name);
  return it == shards_->tensors.end() ? nullptr : &it->second;
}

HfFolder::EosTokens HfFolder::eos_tokens() const {
  EosTokens tokens{.file = join_path(directory_, "generation_config.json")};
  if (path_exists(tokens.file)) {
    const Json generation = parse_json_file(tokens.file, kMaxConfigBytes);
    if (!generation.is_object()) {
      fail(tokens.file, fmt::format("a JSON object is expected, not {}", generation.type_name()),
           "write {\"eos_token_id\": ...}, or remove the file");
    }
    if (append_eos_ids(generation, tokens.file, tokens.ids)) return tokens;
  }
  tokens.file = join_path(directory_, "config.json");
  append_eos_ids(*config_, tokens.file, tokens.ids);
  return tokens;
}

}  // namespace slimexx::io

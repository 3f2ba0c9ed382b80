#include "slimexx/io/conversion.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "slimexx/base/error.h"
#include "slimexx/observe/console.h"

namespace slimexx::io {
namespace {

// Elements [begin, end) of tensor `index`.
struct Cut {
  size_t index;
  int64_t begin, end;
};

// Packs the tensors in order and cuts a tensor where a shard is full. No shard is empty.
std::vector<std::vector<Cut>> plan_shards(const TensorList& tensors, int64_t shard_bytes) {
  std::vector<std::vector<Cut>> shards(1);
  int64_t room = shard_bytes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t n = num_elements(tensors[i]), width = tensor::dtype_bytes(tensors[i].dtype);
    for (int64_t begin = 0; begin < n;) {
      if (room < width) {
        shards.emplace_back();
        room = shard_bytes;
      }
      const int64_t end = std::min(n, begin + room / width);
      shards.back().push_back({i, begin, end});
      room -= (end - begin) * width;
      begin = end;
    }
  }
  return shards;
}

ShardInfo write_one_shard(const std::string& directory, int rank, int num_ranks,
                          const TensorList& tensors, const std::vector<Cut>& cuts,
                          const std::vector<CheckpointTensor>& listed) {
  std::vector<std::vector<char>> data;
  std::vector<CheckpointPiece> pieces;
  for (const Cut& cut : cuts) {
    const HfTensor& t = tensors[cut.index];
    data.emplace_back(static_cast<size_t>((cut.end - cut.begin) * tensor::dtype_bytes(t.dtype)));
    t.read(cut.begin, cut.end, data.back().data());
    pieces.push_back({"weights", t.name, cut.begin, cut.end, data.back().data()});
  }
  return write_shard(directory, rank, num_ranks, listed, pieces);
}

std::map<std::string, std::string> shards_of_state(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> shards;
  const Json& state = checkpoint.state();
  if (!state.is_object() || !state.contains(kHfShardsKey)) return shards;
  const Json& stated = state.at(kHfShardsKey);
  const bool is_map = stated.is_object() &&
                      std::ranges::all_of(stated, [](const Json& v) { return v.is_string(); });
  if (!is_map) {
    throw Error(ErrorCode::kInput,
                fmt::format("key \"{}\" of the state does not map tensors to files", kHfShardsKey),
                "convert the model again", checkpoint.directory());
  }
  for (const auto& [name, file] : stated.items()) shards[name] = file.get<std::string>();
  return shards;
}

}  // namespace

std::vector<ShardInfo> write_weight_shards(const std::string& directory, const HfFolder& folder,
                                           int64_t shard_bytes, int index, int count,
                                           bool show_progress) {
  const TensorList tensors = list_tensors(folder);
  std::vector<CheckpointTensor> listed;
  for (const HfTensor& t : tensors) listed.push_back({"weights", t.name, t.dtype, t.shape});
  const auto plan = plan_shards(tensors, shard_bytes);
  observe::ProgressBar bar("convert", std::ssize(plan), show_progress);
  std::vector<ShardInfo> shards;
  for (size_t i = static_cast<size_t>(index); i < plan.size(); i += static_cast<size_t>(count)) {
    shards.push_back(write_one_shard(directory, static_cast<int>(i), static_cast<int>(plan.size()),
                                     tensors, plan[i], listed));
    bar.advance(count);
  }
  return shards;
}

void commit_weight_shards(const std::string& directory, const HfFolder& folder,
                          std::vector<ShardInfo> shards) {
  std::ranges::sort(shards, {}, &ShardInfo::file);
  copy_side_files(folder.directory(), directory);
  Json names = Json::object();
  for (const auto& [name, file] : map_shards(folder)) names[name] = file;
  write_manifest(directory, shards, Json{{kHfShardsKey, std::move(names)}});
}

HfWriteOptions hf_options_of(const Checkpoint& checkpoint, const std::string& side_files_from) {
  // A training checkpoint has unquantised master weights even if the initial model was quantised. A
  // converted checkpoint has the model's tensors unchanged, including FP8 with scales.
  const bool is_trained = std::ranges::any_of(
      checkpoint.tensors(), [](const CheckpointTensor& t) { return t.section == "master"; });
  return {.template_directory = side_files_from,
          .shards = shards_of_state(checkpoint),
          .drops_quantization = is_trained};
}

}  // namespace slimexx::io

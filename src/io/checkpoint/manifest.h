// manifest.json of a checkpoint: its text and the checks that need no other file.
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {

struct ManifestFile {
  std::string file;
  uint64_t size_bytes = 0;
  std::string hash;
};

struct Manifest {
  std::vector<CheckpointTensor> tensors;
  std::vector<ShardInfo> shards;
  std::vector<ManifestFile> side_files;
  Json state;
};

struct PieceIndex {
  size_t shard, piece;
};

// The pieces of every tensor, by ascending begin if all are ranges. Throws Error(code) at `where`
// unless they cover every tensor exactly once.
std::vector<std::vector<PieceIndex>> cover_tensors(const std::vector<CheckpointTensor>& tensors,
                                                   const std::vector<ShardInfo>& shards,
                                                   ErrorCode code, const std::string& where);

// Maps tensor names to positions; throws Error(code) if a tensor occurs twice.
std::map<std::pair<std::string, std::string>, size_t> index_tensors(
    const std::vector<CheckpointTensor>& tensors, ErrorCode code, const std::string& where);

// One JSON object whose last member is the hash of all text before that member's value.
std::string render_manifest(const Manifest& manifest);

// Both throw Error(kInput) if malformed; parse_manifest also checks the hash. The caller checks
// coverage.
Manifest parse_manifest(std::string_view text, const std::string& where);
Manifest read_manifest_json(const Json& json, const std::string& where);

Json tensor_as_json(const CheckpointTensor& tensor);
CheckpointTensor read_tensor_json(const Json& json, const std::string& where);
Json shard_as_json(const ShardInfo& shard);
ShardInfo read_shard_json(const Json& json, const std::string& where);

}  // namespace slimexx::io

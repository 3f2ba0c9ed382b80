#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "io/checkpoint/manifest.h"
#include "io/content_hash.h"
#include "io/folder_files.h"
#include "io/quote_name.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace {

constexpr size_t kGatheredBytes = size_t{1} << 20;

std::string shard_name(int rank, int num_ranks) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", rank, num_ranks);
}

void refuse_complete(const std::string& directory) {
  if (!path_exists(join_path(directory, kManifestName))) return;
  throw Error(ErrorCode::kRun, "the folder is a complete checkpoint and is not changed",
              "this is a bug in slimexx; please report it", directory);
}

struct PlannedPiece {
  TensorEntry entry;
  const CheckpointPiece* piece;
  ShardInfo::Piece info;
};

PlannedPiece plan_box(const CheckpointPiece& piece, const CheckpointTensor& t) {
  const tensor::Box& box = piece.box;
  SLX_CHECK(box.begin.size() == t.shape.size() && piece.strides.size() == t.shape.size() &&
                tensor::intersect(box, tensor::whole_box(t.shape)) == box &&
                tensor::count_elements(box) > 0,
            "a piece of {} is not a box inside the tensor", t.name);
  std::string key = t.section + "/" + t.name, separator = "@";
  for (size_t d = 0; d < box.begin.size(); ++d) {
    key += fmt::format("{}{}:{}", separator, box.begin[d], box.end[d]);
    separator = ",";
  }
  return {{key, t.dtype, tensor::extents_of(box)}, &piece, {t.section, t.name, 0, 0, key, box}};
}

PlannedPiece plan_piece(const CheckpointPiece& piece, const CheckpointTensor& t) {
  if (!piece.box.begin.empty()) return plan_box(piece, t);
  const int64_t n = t.num_elements();
  SLX_CHECK(0 <= piece.begin && piece.begin < piece.end && piece.end <= n,
            "piece [{}, {}) is empty or outside the {} elements of {}", piece.begin, piece.end, n,
            t.name);
  const bool whole = piece.begin == 0 && piece.end == n;
  // A whole tensor keeps its shape, so that other programs can read the tensor.
  std::string key = t.section + "/" + t.name;
  if (!whole) key += fmt::format("@{}:{}", piece.begin, piece.end);
  const auto shape = whole ? t.shape : std::vector<int64_t>{piece.end - piece.begin};
  return {{key, t.dtype, shape}, &piece, {t.section, t.name, piece.begin, piece.end, key}};
}

std::vector<PlannedPiece> plan_pieces(const std::vector<CheckpointTensor>& tensors,
                                      std::span<const CheckpointPiece> pieces) {
  const auto index = index_tensors(tensors, ErrorCode::kRun, "");
  std::vector<PlannedPiece> planned;
  for (const CheckpointPiece& p : pieces) {
    if (p.box.begin.empty() && p.begin == p.end)
      continue;  // a small tensor: this rank has no part of it
    const auto it = index.find({p.section, p.name});
    SLX_CHECK(it != index.end(), "a piece belongs to tensor {}/{}, which is not listed", p.section,
              p.name);
    planned.push_back(plan_piece(p, tensors[it->second]));
  }
  return planned;
}

// Gathers strided data into a buffer, so that writes to the file are large.
void write_piece(SafetensorsWriter& writer, const CheckpointPiece& piece,
                 const TensorEntry& entry) {
  const auto width = static_cast<size_t>(tensor::dtype_bytes(entry.dtype));
  const auto* data = static_cast<const char*>(piece.data);
  if (piece.box.begin.empty())
    return writer.write(data, static_cast<uint64_t>(entry.num_elements()) * width);
  std::string gathered;
  const auto flush = [&] {
    writer.write(gathered.data(), gathered.size());
    gathered.clear();
  };
  for (const auto& run :
       tensor::list_runs(entry.shape, piece.strides, tensor::strides_of(entry.shape))) {
    gathered.append(data + static_cast<size_t>(run.from) * width,
                    static_cast<size_t>(run.size) * width);
    if (gathered.size() >= kGatheredBytes) flush();
  }
  flush();
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!synced) {
    throw Error(ErrorCode::kEnvironment,
                fmt::format("cannot flush to disk: {}", std::strerror(error)),
                "check the disk and its mount", path);
  }
}

std::vector<ManifestFile> list_side_files(const std::string& directory) {
  std::vector<ManifestFile> files;
  for (const std::string& name : list_files(directory)) {
    if (!is_side_file_name(name)) continue;
    const std::string path = join_path(directory, name);
    sync_file(path);
    files.push_back({name, file_bytes(path), hash_file(path)});
  }
  return files;
}

// The union of the tensors that the ranks declare, in rank order.
std::vector<CheckpointTensor> unite_tensors(const std::vector<ShardInfo>& shards,
                                            const std::string& where) {
  std::vector<CheckpointTensor> tensors;
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (const ShardInfo& shard : shards) {
    for (const CheckpointTensor& t : shard.tensors) {
      const auto [it, is_new] = index.emplace(std::pair(t.section, t.name), tensors.size());
      if (is_new) {
        tensors.push_back(t);
      } else if (tensors[it->second].shape != t.shape || tensors[it->second].dtype != t.dtype) {
        throw Error(ErrorCode::kRun,
                    fmt::format("tensor {} of section {} differs between ranks", quote_name(t.name),
                                quote_name(t.section)),
                    "this is a bug in slimexx; please report it", where);
      }
    }
  }
  return tensors;
}

void check_state(const Json& state, const std::string& where) {
  std::string what;
  try {
    if (parse_json(state.dump(), where) == state) return;
    what = "a number is not finite";
  } catch (const nlohmann::json::exception& e) {
    what = e.what();
  } catch (const Error& e) {
    what = e.message();
  }
  throw Error(ErrorCode::kRun, fmt::format("the state cannot be written as JSON: {}", what),
              "this is a bug in slimexx; please report it", where);
}

}  // namespace

ShardInfo write_shard(const std::string& directory, int rank, int num_ranks,
                      const std::vector<CheckpointTensor>& tensors,
                      std::span<const CheckpointPiece> pieces) {
  SLX_CHECK(0 <= rank && rank < num_ranks, "there is no rank {} among {} ranks", rank, num_ranks);
  std::vector<PlannedPiece> planned = plan_pieces(tensors, pieces);
  std::vector<TensorEntry> entries;
  std::unordered_map<std::string, const PlannedPiece*> by_key;
  for (const PlannedPiece& p : planned) {
    entries.push_back(p.entry);
    by_key[p.entry.name] = &p;
  }
  sort_entries(entries);
  make_directories(directory);
  refuse_complete(directory);
  ShardInfo shard;
  shard.tensors = tensors;
  shard.file = shard_name(rank, num_ranks);
  SafetensorsWriter writer(join_path(directory, shard.file), entries, {});
  for (const TensorEntry& e : entries) {
    const PlannedPiece& p = *by_key[e.name];
    write_piece(writer, *p.piece, e);
    shard.pieces.push_back(p.info);
  }
  writer.finish();
  shard.size_bytes = writer.size_bytes();
  shard.hash = writer.content_hash();
  return shard;
}

void write_manifest(const std::string& directory, const std::vector<ShardInfo>& shards,
                    const Json& state) {
  const std::vector<CheckpointTensor> tensors = unite_tensors(shards, directory);
  cover_tensors(tensors, shards, ErrorCode::kRun, directory);
  check_state(state, directory);
  for (const ShardInfo& s : shards) {
    const std::string path = join_path(directory, s.file);
    if (const uint64_t size = file_bytes(path); size != s.size_bytes) {
      throw Error(ErrorCode::kRun,
                  fmt::format("the shard has {} bytes, but {} were written", size, s.size_bytes),
                  "check that all ranks write to the same file system", path);
    }
  }
  const Manifest manifest{tensors, shards, list_side_files(directory), state};
  const std::string text = render_manifest(manifest);
  sync_directory(directory);
  write_file_atomic(join_path(directory, kManifestName), text);
  const auto parent = std::filesystem::absolute(directory + "/").parent_path().parent_path();
  sync_directory(parent.string());
}

std::string shard_to_json(const ShardInfo& shard) {
  Json json = shard_as_json(shard);
  for (const CheckpointTensor& t : shard.tensors) json["tensors"].push_back(tensor_as_json(t));
  return json.dump();
}

ShardInfo shard_from_json(const std::string& text) {
  const std::string where = "shard description";
  const Json json = parse_json(text, where);
  ShardInfo shard = read_shard_json(json, where);
  if (json.contains("tensors"))
    for (const Json& t : json.at("tensors")) shard.tensors.push_back(read_tensor_json(t, where));
  return shard;
}

}  // namespace slimexx::io

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/checkpoint/manifest.h"
#include "io/content_hash.h"
#include "io/folder_files.h"
#include "io/quote_name.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::io {
namespace {

constexpr const char* kDamaged = "the checkpoint is damaged: load another one";

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInput, what, kDamaged, where);
}

Manifest load_manifest(const std::string& directory) {
  const std::string path = join_path(directory, kManifestName);
  if (!path_exists(path)) {
    throw Error(ErrorCode::kInput,
                "the folder is not a complete checkpoint: it has no manifest.json",
                "give the folder of a complete checkpoint", directory);
  }
  return parse_manifest(read_text_file(path), path);
}

void check_size(const std::string& path, uint64_t stated) {
  if (!path_exists(path)) fail(path, "the manifest lists this file, but it is missing");
  if (const uint64_t size = file_bytes(path); size != stated) {
    fail(path, fmt::format("the file has {} bytes, but the manifest states {}", size, stated));
  }
}

const TensorEntry* find_piece(const SafetensorsFile& file, const ShardInfo::Piece& piece,
                              const CheckpointTensor& t) {
  const TensorEntry* entry = file.find(piece.key);
  if (!entry) fail(file.path(), fmt::format("the shard lacks {}", quote_name(piece.key)));
  if (entry->dtype != t.dtype || entry->num_elements() != piece.num_elements()) {
    fail(file.path(),
         fmt::format("{} is {} x {}, but the manifest states {} x {}", quote_name(piece.key),
                     tensor::dtype_name(entry->dtype), entry->num_elements(),
                     tensor::dtype_name(t.dtype), piece.num_elements()));
  }
  return entry;
}

}  // namespace

int64_t CheckpointTensor::num_elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t read_counter(const Json& state, const std::string& key, const std::string& where) {
  const int64_t value = json_int(state, key, where);
  if (value >= 0 && value <= kMaxCounter) return value;
  throw Error(ErrorCode::kInput,
              fmt::format("key \"{}\" of the state is {}, not a count", key, value), kDamaged,
              where);
}

Checkpoint Checkpoint::open(const std::string& directory) {
  Manifest manifest = load_manifest(directory);
  const std::string manifest_path = join_path(directory, kManifestName);
  const auto cover =
      cover_tensors(manifest.tensors, manifest.shards, ErrorCode::kInput, manifest_path);
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  checkpoint.index_ = index_tensors(manifest.tensors, ErrorCode::kInput, manifest_path);
  for (const ShardInfo& s : manifest.shards) {
    check_size(join_path(directory, s.file), s.size_bytes);
    checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(join_path(directory, s.file)));
    if (checkpoint.files_.back()->entries().size() != s.pieces.size()) {
      fail(checkpoint.files_.back()->path(),
           fmt::format("the shard holds {} pieces, but the manifest states {}",
                       checkpoint.files_.back()->entries().size(), s.pieces.size()));
    }
    checkpoint.hashes_.emplace_back(s.file, s.hash);
  }
  for (const ManifestFile& f : manifest.side_files) {
    check_size(join_path(directory, f.file), f.size_bytes);
    checkpoint.hashes_.emplace_back(f.file, f.hash);
  }
  checkpoint.pieces_.resize(cover.size());
  for (size_t t = 0; t < cover.size(); ++t) {
    for (const auto [shard, piece] : cover[t]) {
      const auto& p = manifest.shards[shard].pieces[piece];
      const TensorEntry* entry = find_piece(*checkpoint.files_[shard], p, manifest.tensors[t]);
      checkpoint.pieces_[t].push_back({shard, entry, p.begin, p.end, p.box});
    }
  }
  checkpoint.tensors_ = std::move(manifest.tensors);
  checkpoint.state_ = std::make_shared<Json>(std::move(manifest.state));
  return checkpoint;
}

const CheckpointTensor* Checkpoint::find(const std::string& section,
                                         const std::string& name) const {
  const auto it = index_.find({section, name});
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

void Checkpoint::read(const std::string& section, const std::string& name, int64_t begin,
                      int64_t end, void* destination) const {
  const auto it = index_.find({section, name});
  if (it == index_.end()) {
    throw Error(ErrorCode::kInput,
                fmt::format("the checkpoint has no tensor {} in section {}", quote_name(name),
                            quote_name(section)),
                "was it written by a run of the same model?", directory_);
  }
  const CheckpointTensor& t = tensors_[it->second];
  SLX_CHECK(0 <= begin && begin <= end && end <= t.num_elements(),
            "elements [{}, {}) are not in tensor {}", begin, end, name);
  const auto& pieces = pieces_[it->second];
  const int64_t width = tensor::dtype_bytes(t.dtype);
  auto* bytes = static_cast<char*>(destination);
  if (std::ranges::any_of(pieces, [](const auto& p) { return !p.box.begin.empty(); })) {
    for (const tensor::Box& box : tensor::split_range(t.shape, begin, end)) {
      read_box(it->second, box, bytes);
      bytes += tensor::count_elements(box) * width;
    }
    return;
  }
  auto piece = std::ranges::upper_bound(pieces, begin, {}, &PieceSource::end);
  for (int64_t at = begin; at < end; ++piece) {
    const int64_t stop = std::min(end, piece->end);
    files_[piece->file]->read(*piece->entry, at - piece->begin, stop - piece->begin,
                              bytes + (at - begin) * width);
    at = stop;
  }
}

void Checkpoint::read_box(size_t index, const tensor::Box& box, char* destination) const {
  const CheckpointTensor& t = tensors_[index];
  const int64_t width = tensor::dtype_bytes(t.dtype);
  const auto to = tensor::strides_of(tensor::extents_of(box));
  // `held` starts at element `skipped` of the piece.
  const auto read_from = [&](const PieceSource& piece, const tensor::Box& held, int64_t skipped) {
    const tensor::Box both = tensor::intersect(held, box);
    const auto from = tensor::strides_of(tensor::extents_of(held));
    int64_t first = skipped, target = 0;
    for (size_t d = 0; d < from.size(); ++d) {
      first += (both.begin[d] - held.begin[d]) * from[d];
      target += (both.begin[d] - box.begin[d]) * to[d];
    }
    for (const auto& run : tensor::list_runs(tensor::extents_of(both), from, to))
      files_[piece.file]->read(*piece.entry, first + run.from, first + run.from + run.size,
                               destination + (target + run.to) * width);
  };
  for (const PieceSource& piece : pieces_[index]) {
    if (!piece.box.begin.empty()) {
      read_from(piece, piece.box, 0);
      continue;
    }
    int64_t skipped = 0;  // a range concatenates its boxes
    for (const tensor::Box& held : tensor::split_range(t.shape, piece.begin, piece.end)) {
      read_from(piece, held, skipped);
      skipped += tensor::count_elements(held);
    }
  }
}

void Checkpoint::verify_hashes() const {
  std::vector<std::string> actual(hashes_.size());
  parallel_for(int64_t(hashes_.size()), 1, [&](int64_t first, int64_t last) {
    for (auto i = size_t(first); i < size_t(last); ++i) {
      actual[i] = hash_file(join_path(directory_, hashes_[i].first));
    }
  });
  for (size_t i = 0; i < hashes_.size(); ++i) {
    if (actual[i] == hashes_[i].second) continue;
    fail(join_path(directory_, hashes_[i].first),
         fmt::format("the hash of the content is {}, but the manifest states {}", actual[i],
                     hashes_[i].second));
  }
}

}  // namespace slimexx::io

#include "io/checkpoint/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "io/content_hash.h"
#include "io/folder_files.h"
#include "io/quote_name.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::io {
namespace {

constexpr std::string_view kFormatName = "slimexx checkpoint";
constexpr std::string_view kHashKey = "\"content_hash\": \"";
constexpr std::string_view kEnd = "\"}\n";

// Limit of boxes per tensor: more would take long to check, and no run writes more.
constexpr size_t kMaxBoxPieces = size_t{1} << 16;

constexpr const char* kDamaged = "the manifest is damaged: load another checkpoint";

// The hint for a fault in a list that was read (kInput) or is about to be written.
const char* remedy_for(ErrorCode code) {
  return code == ErrorCode::kInput ? kDamaged : "this is a bug in slimexx; please report it";
}

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInput, what, kDamaged, where);
}

const Json& array_member(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) fail(where, fmt::format("\"{}\" must be a list", key));
  return *it;
}

int64_t natural_member(const Json& object, const char* key, const std::string& where) {
  const int64_t value = json_int(object, key, where);
  if (value < 0) fail(where, fmt::format("\"{}\" is negative: {}", key, value));
  return value;
}

std::string file_member(const Json& object, const std::string& where) {
  std::string name = json_string(object, "file", where);
  if (!is_plain_file_name(name) || name == kManifestName) {
    fail(where, fmt::format("{} is not a file of the checkpoint's folder", quote_name(name)));
  }
  return name;
}

std::string hash_member(const Json& object, const std::string& where) {
  std::string hash = json_string(object, "hash", where);
  if (!is_hash(hash)) fail(where, fmt::format("{} is not a hash", quote_name(hash)));
  return hash;
}

tensor::DType dtype_member(const Json& object, const char* key, const std::string& tensor,
                           const std::string& where) {
  const std::string name = json_string(object, key, where);
  const auto dtype = tensor::parse_safetensors_dtype(name);
  if (!dtype)
    fail(where, fmt::format("tensor {}: unknown {} {}", quote_name(tensor), key, quote_name(name)));
  return *dtype;
}

void check_files_distinct(const Manifest& manifest, const std::string& where) {
  std::map<std::string, int> count;
  for (const ShardInfo& s : manifest.shards) ++count[s.file];
  for (const ManifestFile& f : manifest.side_files) ++count[f.file];
  for (const auto& [file, n] : count) {
    if (n > 1) fail(where, fmt::format("file {} is listed twice", quote_name(file)));
  }
}

template <class List, class AsJson>
std::string render_list(const char* key, const List& list, AsJson as_json) {
  std::string text = fmt::format("\"{}\": [", key);
  const char* separator = "\n";
  for (const auto& item : list) {
    text += separator + as_json(item).dump();
    separator = ",\n";
  }
  return text + "],\n";
}

std::vector<int64_t> natural_list(const Json& list, const char* key, const std::string& where) {
  std::vector<int64_t> values;
  for (const Json& value : list) {
    if (!value.is_number_unsigned() || value.get<uint64_t>() > uint64_t{INT64_MAX})
      fail(where, fmt::format("\"{}\" must hold whole numbers of at least 0", key));
    values.push_back(value.get<int64_t>());
  }
  return values;
}

// Reads begin and end of a piece: numbers for a range, lists for a box.
void read_extent(const Json& json, ShardInfo::Piece& piece, const std::string& where) {
  const auto begin = json.find("begin"), end = json.find("end");
  const bool is_box =
      begin != json.end() && end != json.end() && begin->is_array() && end->is_array();
  bool is_empty = false;
  if (is_box) {
    piece.box = {natural_list(*begin, "begin", where), natural_list(*end, "end", where)};
    is_empty = piece.box.begin.empty() || piece.box.begin.size() != piece.box.end.size();
    for (size_t d = 0; !is_empty && d < piece.box.begin.size(); ++d)
      is_empty = piece.box.begin[d] >= piece.box.end[d];
  } else {
    piece.begin = natural_member(json, "begin", where);
    piece.end = natural_member(json, "end", where);
    is_empty = piece.begin >= piece.end;
  }
  if (is_empty)
    fail(where, fmt::format("tensor {}: piece [{}, {}) is empty", quote_name(piece.name),
                            begin->dump(), end->dump()));
}

// Describes how pieces, at least one of them a box, fail to cover a tensor; empty if they cover it.
std::string find_box_fault(const CheckpointTensor& t,
                           const std::vector<const ShardInfo::Piece*>& pieces) {
  if (pieces.size() > kMaxBoxPieces)
    return fmt::format("{} pieces are more than {}", pieces.size(), kMaxBoxPieces);
  std::vector<tensor::Box> boxes;
  for (const ShardInfo::Piece* piece : pieces) {
    if (!piece->box.begin.empty()) {
      boxes.push_back(piece->box);
    } else if (piece->end > t.num_elements()) {
      return fmt::format("a piece ends at element {} of {}", piece->end, t.num_elements());
    } else {
      for (auto& box : tensor::split_range(t.shape, piece->begin, piece->end))
        boxes.push_back(std::move(box));
    }
  }
  if (tensor::cover_exactly(t.shape, boxes)) return "";
  return "an element is missing from all shards, or is in two pieces";
}

}  // namespace

int64_t ShardInfo::Piece::num_elements() const {
  return box.begin.empty() ? end - begin : tensor::count_elements(box);
}

Json tensor_as_json(const CheckpointTensor& t) {
  Json json{{"section", t.section},
            {"name", t.name},
            {"dtype", tensor::dtype_name(t.dtype)},
            {"shape", t.shape}};
  if (t.export_dtype) json["export_dtype"] = tensor::dtype_name(*t.export_dtype);
  return json;
}

CheckpointTensor read_tensor_json(const Json& json, const std::string& where) {
  CheckpointTensor t;
  t.section = json_string(json, "section", where);
  t.name = json_string(json, "name", where);
  t.dtype = dtype_member(json, "dtype", t.name, where);
  if (json.contains("export_dtype"))
    t.export_dtype = dtype_member(json, "export_dtype", t.name, where);
  if (t.export_dtype && *t.export_dtype != t.dtype &&
      !(tensor::is_convertible(t.dtype) && tensor::is_convertible(*t.export_dtype)))
    fail(where, fmt::format("tensor {}: dtype {} cannot be exported as {}", quote_name(t.name),
                            tensor::dtype_name(t.dtype), tensor::dtype_name(*t.export_dtype)));
  int64_t bytes = tensor::dtype_bytes(t.dtype);
  for (const Json& d : array_member(json, "shape", where)) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > uint64_t{INT64_MAX} ||
        __builtin_mul_overflow(bytes, d.get<int64_t>(), &bytes)) {
      fail(where, fmt::format("tensor {}: impossible shape", quote_name(t.name)));
    }
    t.shape.push_back(d.get<int64_t>());
  }
  return t;
}

Json shard_as_json(const ShardInfo& shard) {
  Json json;
  json["file"] = shard.file;
  json["size_bytes"] = shard.size_bytes;
  json["hash"] = shard.hash;
  Json pieces = Json::array();
  for (const auto& p : shard.pieces) {
    Json piece{{"section", p.section}, {"name", p.name}, {"key", p.key}};
    piece["begin"] = p.box.begin.empty() ? Json(p.begin) : Json(p.box.begin);
    piece["end"] = p.box.begin.empty() ? Json(p.end) : Json(p.box.end);
    pieces.push_back(std::move(piece));
  }
  json["pieces"] = std::move(pieces);
  return json;
}

ShardInfo read_shard_json(const Json& json, const std::string& where) {
  ShardInfo shard;
  shard.file = file_member(json, where);
  shard.size_bytes = static_cast<uint64_t>(natural_member(json, "size_bytes", where));
  shard.hash = hash_member(json, where);
  for (const Json& p : array_member(json, "pieces", where)) {
    ShardInfo::Piece piece{json_string(p, "section", where), json_string(p, "name", where), 0, 0,
                           json_string(p, "key", where)};
    read_extent(p, piece, where);
    shard.pieces.push_back(std::move(piece));
  }
  return shard;
}

std::map<std::pair<std::string, std::string>, size_t> index_tensors(
    const std::vector<CheckpointTensor>& tensors, ErrorCode code, const std::string& where) {
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CheckpointTensor& t = tensors[i];
    if (!index.emplace(std::pair(t.section, t.name), i).second) {
      throw Error(code,
                  fmt::format("tensor {} of section {} is listed twice", quote_name(t.name),
                              quote_name(t.section)),
                  remedy_for(code), where);
    }
  }
  return index;
}

std::vector<std::vector<PieceIndex>> cover_tensors(const std::vector<CheckpointTensor>& tensors,
                                                   const std::vector<ShardInfo>& shards,
                                                   ErrorCode code, const std::string& where) {
  const auto index = index_tensors(tensors, code, where);
  const auto refuse = [&](const std::string& section, const std::string& name,
                          const std::string& what) {
    throw Error(
        code,
        fmt::format("tensor {} of section {}: {}", quote_name(name), quote_name(section), what),
        remedy_for(code), where);
  };
  std::vector<std::vector<PieceIndex>> cover(tensors.size());
  for (size_t s = 0; s < shards.size(); ++s) {
    for (size_t p = 0; p < shards[s].pieces.size(); ++p) {
      const auto& piece = shards[s].pieces[p];
      const auto it = index.find({piece.section, piece.name});
      if (it == index.end())
        refuse(piece.section, piece.name, "is in a shard but not in the list of tensors");
      cover[it->second].push_back({s, p});
    }
  }
  const auto piece_at = [&](PieceIndex i) -> const ShardInfo::Piece& {
    return shards[i.shard].pieces[i.piece];
  };
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<const ShardInfo::Piece*> pieces;
    for (const PieceIndex i : cover[t]) pieces.push_back(&piece_at(i));
    if (std::ranges::any_of(pieces, [](const auto* p) { return !p->box.begin.empty(); })) {
      const std::string fault = find_box_fault(tensors[t], pieces);
      if (!fault.empty()) refuse(tensors[t].section, tensors[t].name, fault);
      continue;
    }
    std::ranges::sort(cover[t], {}, [&](PieceIndex i) { return piece_at(i).begin; });
    int64_t reached = 0;
    for (const PieceIndex i : cover[t]) {
      const auto& piece = piece_at(i);
      if (piece.begin != reached) {
        refuse(piece.section, piece.name,
               fmt::format("elements [{}, {}) are {}", std::min(reached, piece.begin),
                           std::max(reached, piece.begin),
                           piece.begin > reached ? "missing from all shards" : "in two pieces"));
      }
      reached = piece.end;
    }
    if (reached != tensors[t].num_elements()) {
      refuse(tensors[t].section, tensors[t].name,
             fmt::format("the pieces end at element {} of {}", reached, tensors[t].num_elements()));
    }
  }
  return cover;
}

std::string render_manifest(const Manifest& manifest) {
  bool has_boxes = false;
  for (const ShardInfo& shard : manifest.shards)
    for (const auto& piece : shard.pieces) has_boxes |= !piece.box.begin.empty();
  std::string text = fmt::format("{{\"format\": \"{}\",\n\"version\": {},\n", kFormatName,
                                 has_boxes ? kCheckpointFormat : 1);
  text += render_list("tensors", manifest.tensors, tensor_as_json);
  text += render_list("shards", manifest.shards, shard_as_json);
  text += render_list("side_files", manifest.side_files, [](const ManifestFile& f) {
    return Json{{"file", f.file}, {"size_bytes", f.size_bytes}, {"hash", f.hash}};
  });
  text += "\"state\": " + manifest.state.dump() + ",\n";
  text += kHashKey;
  return text + hash_text(text) + std::string(kEnd);
}

Manifest read_manifest_json(const Json& json, const std::string& where) {
  if (!json.is_object() || json.value("format", Json()) != Json(kFormatName)) {
    throw Error(ErrorCode::kInput, "this is not the manifest of a checkpoint",
                "give a checkpoint's folder", where);
  }
  const int64_t version = json_int(json, "version", where);
  if (version < 1 || version > kCheckpointFormat) {
    throw Error(ErrorCode::kInput,
                fmt::format("the checkpoint has format version {}, but this program reads 1 to {}",
                            version, kCheckpointFormat),
                version > kCheckpointFormat ? "use the newer slimexx that wrote it" : kDamaged,
                where);
  }
  Manifest manifest;
  for (const Json& t : array_member(json, "tensors", where))
    manifest.tensors.push_back(read_tensor_json(t, where));
  for (const Json& s : array_member(json, "shards", where))
    manifest.shards.push_back(read_shard_json(s, where));
  for (const Json& f : array_member(json, "side_files", where)) {
    manifest.side_files.push_back({file_member(f, where),
                                   static_cast<uint64_t>(natural_member(f, "size_bytes", where)),
                                   hash_member(f, where)});
  }
  check_files_distinct(manifest, where);
  const auto state = json.find("state");
  if (state == json.end()) fail(where, "key \"state\" is missing");
  manifest.state = *state;
  return manifest;
}

Manifest parse_manifest(std::string_view text, const std::string& where) {
  // Parse before the hash check, so that a newer version is not reported as damage.
  Manifest manifest = read_manifest_json(parse_json(text, where), where);
  const size_t tail = kHashKey.size() + kHashDigits + kEnd.size();
  const std::string_view covered =
      text.substr(0, text.size() - std::min(text.size(), kHashDigits + kEnd.size()));
  if (text.size() < tail || !covered.ends_with(kHashKey) || !text.ends_with(kEnd)) {
    fail(where, "the manifest does not end with its content_hash");
  }
  const std::string_view stated = text.substr(covered.size(), kHashDigits);
  if (const std::string actual = hash_text(covered); stated != actual) {
    fail(where, fmt::format("the manifest's content_hash is {}, but its text has {}",
                            quote_name(stated), actual));
  }
  return manifest;
}

}  // namespace slimexx::io

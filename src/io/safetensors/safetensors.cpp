#include "slimexx/io/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "io/content_hash.h"
#include "io/quote_name.h"
#include "io/safetensors/element_types.h"
#include "io/safetensors/safetensors_header.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"

namespace slimexx::io {
namespace {

// Data is hashed and then written in pieces that fit the L2 cache.
constexpr uint64_t kWriteBytes = uint64_t{1} << 20;

}  // namespace

int64_t TensorEntry::num_elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::string start(std::min(kHeaderLengthBytes + 1, file_.size_bytes()), '\0');
  file_.read_at(0, start.data(), start.size());
  std::string json(parse_header_length(start, file_.size_bytes(), path), '\0');
  file_.read_at(kHeaderLengthBytes, json.data(), json.size());
  data_offset_ = kHeaderLengthBytes + json.size();
  SafetensorsHeader header =
      parse_safetensors_header(json, file_.size_bytes() - data_offset_, path);
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  unsupported_ = std::move(header.unsupported);
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].name, i);
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  if (const auto it = index_.find(name); it != index_.end()) return &entries_[it->second];
  if (const auto it = unsupported_.find(name); it != unsupported_.end()) {
    throw Error(ErrorCode::kInput,
                fmt::format("tensor {} has dtype {}, which this program does not read",
                            quote_name(name), it->second),
                "convert the model to BF16, F16 or F32 first", path());
  }
  return nullptr;
}

void SafetensorsFile::read(const TensorEntry& entry, int64_t begin, int64_t end,
                           void* destination) const {
  SLX_CHECK(0 <= begin && begin <= end && end <= entry.num_elements(),
            "elements [{}, {}) are not in tensor {}", begin, end, entry.name);
  const auto width = static_cast<uint64_t>(tensor::dtype_bytes(entry.dtype));
  file_.read_at(data_offset_ + entry.begin + static_cast<uint64_t>(begin) * width, destination,
                static_cast<uint64_t>(end - begin) * width);
}

void sort_entries(std::vector<TensorEntry>& entries) {
  std::ranges::sort(entries, [](const TensorEntry& a, const TensorEntry& b) {
    const int order_a = element_type_order(a.dtype), order_b = element_type_order(b.dtype);
    return order_a != order_b ? order_a > order_b : a.name < b.name;
  });
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorEntry> entries,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), file_(path), hash_(std::make_unique<ContentHash>()) {
  std::unordered_set<std::string_view> names;
  for (const TensorEntry& e : entries) {
    SLX_CHECK(names.insert(e.name).second, "tensor {} is listed twice", e.name);
  }
  const std::string header = render_safetensors_header(entries, metadata, path);
  expected_bytes_ = entries.empty() ? 0 : entries.back().end;
  put(header.data(), header.size());
}

SafetensorsWriter::~SafetensorsWriter() = default;

void SafetensorsWriter::put(const char* data, uint64_t n_bytes) {
  for (uint64_t done = 0; done < n_bytes;) {
    const uint64_t n = std::min(kWriteBytes, n_bytes - done);
    hash_->append(data + done, n);
    file_.write(data + done, n);
    done += n;
  }
}

void SafetensorsWriter::write(const void* data, uint64_t n_bytes) {
  SLX_CHECK_LE(n_bytes, expected_bytes_ - written_bytes_);
  put(static_cast<const char*>(data), n_bytes);
  written_bytes_ += n_bytes;
}

void SafetensorsWriter::finish() {
  if (written_bytes_ != expected_bytes_) {
    throw Error(
        ErrorCode::kRun,
        fmt::format("only {} of {} bytes of tensors were written", written_bytes_, expected_bytes_),
        "", path_);
  }
  file_.commit();
}

std::string SafetensorsWriter::content_hash() const { return hash_->hex(); }
uint64_t SafetensorsWriter::size_bytes() const { return file_.size_bytes(); }

}  // namespace slimexx::io

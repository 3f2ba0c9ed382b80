#include "io/safetensors/safetensors_header.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>

#include "io/quote_name.h"
#include "io/safetensors/safetensors_sax.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what,
                       const std::string& hint = "fetch or write the file again") {
  throw Error(ErrorCode::kInput, what, hint, path);
}

// Recognises other file formats that users pass by mistake and names them in the error.
void refuse_other_formats(std::string_view start, const std::string& path) {
  if (start.starts_with("version ")) {
    fail(path, "the file is a Git LFS pointer, not the weights", "fetch them with `git lfs pull`");
  }
  // The first bytes of a pickle are also valid lengths (640, 66176, ...). Only a safetensors header
  // has a brace after them.
  const bool is_header = start.size() > kHeaderLengthBytes && start[kHeaderLengthBytes] == '{';
  if (!is_header && (start.starts_with("PK\x03\x04") || start.starts_with("\x80\x02"))) {
    fail(path, "the file is a PyTorch pickle, not safetensors", "convert it to safetensors first");
  }
  if (start.starts_with("GGUF")) {
    fail(path, "the file is GGUF, not safetensors", "use the safetensors files of the model");
  }
}

// Bytes of a tensor from dtype and shape. Multiplies in the reference's order, so [0, 2^40, 2^40]
// is empty while [2^40, 2^40, 0] overflows.
uint64_t required_bytes(const RawTensor& t, const std::string& path) {
  uint64_t bits = 1;
  bool overflow = false;
  for (const int64_t d : t.entry.shape) {
    overflow |= __builtin_mul_overflow(bits, static_cast<uint64_t>(d), &bits);
  }
  overflow |= __builtin_mul_overflow(bits, t.type->bits, &bits);
  if (overflow) {
    fail(path,
         fmt::format("tensor {}: the number of elements overflows", quote_name(t.entry.name)));
  }
  if (bits % 8 != 0) {
    fail(path, fmt::format("tensor {}: {} bits of {} do not end on a byte",
                           quote_name(t.entry.name), bits, t.type->name));
  }
  return bits / 8;
}

void check_range(const RawTensor& t, uint64_t expected_begin, const std::string& path) {
  const TensorEntry& e = t.entry;
  if (e.begin != expected_begin || e.end < e.begin) {
    fail(path, fmt::format("tensor {}: data_offsets are [{}, {}], but the data must continue at {}",
                           quote_name(e.name), e.begin, e.end, expected_begin));
  }
  const uint64_t wanted = required_bytes(t, path);
  if (e.end - e.begin != wanted) {
    fail(path, fmt::format(
                   "tensor {}: shape and dtype {} need {} bytes, but data_offsets [{}, {}] hold {}",
                   quote_name(e.name), t.type->name, wanted, e.begin, e.end, e.end - e.begin));
  }
}

void check_names(const std::vector<RawTensor>& tensors, const std::string& path) {
  std::unordered_set<std::string_view> names;
  names.reserve(tensors.size());
  for (const RawTensor& t : tensors) {
    if (!names.insert(t.entry.name).second) {
      fail(path, fmt::format("duplicate tensor {}", quote_name(t.entry.name)));
    }
  }
}

}  // namespace

uint64_t parse_header_length(std::string_view first_bytes, uint64_t file_bytes,
                             const std::string& path) {
  if (first_bytes.size() < kHeaderLengthBytes) {
    fail(path, fmt::format("the file has only {} bytes, too few for safetensors", file_bytes));
  }
  refuse_other_formats(first_bytes, path);
  uint64_t length = 0;
  for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
    length |= uint64_t{static_cast<unsigned char>(first_bytes[i])} << (8 * i);
  }
  if (length > kMaxHeaderBytes) {
    fail(path,
         fmt::format("bytes 0-7 give a header of {} bytes, but the format allows {}", length,
                     kMaxHeaderBytes),
         "check that this is a safetensors file");
  }
  if (length > file_bytes - kHeaderLengthBytes) {
    fail(path,
         fmt::format("bytes 0-7 give a header of {} bytes, but the file has {} in total", length,
                     file_bytes),
         "the file is truncated: fetch or write it again");
  }
  return length;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& path) {
  RawHeader raw = read_header_json(json, path);
  check_names(raw.tensors, path);
  std::ranges::stable_sort(
      raw.tensors, {}, [](const RawTensor& t) { return std::tuple(t.entry.begin, t.entry.end); });
  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  header.entries.reserve(raw.tensors.size());
  uint64_t position = 0;
  for (RawTensor& t : raw.tensors) {
    check_range(t, position, path);
    position = t.entry.end;
    if (t.type->dtype) {
      t.entry.dtype = *t.type->dtype;
      header.entries.push_back(std::move(t.entry));
    } else {
      header.unsupported.emplace(std::move(t.entry.name), t.type->name);
    }
  }
  if (position > data_bytes) {
    fail(path,
         fmt::format("the tensors take {} bytes, but the file holds {} after the header", position,
                     data_bytes),
         "the file is truncated: fetch or write it again");
  }
  if (position < data_bytes) {
    fail(path, fmt::format("{} bytes follow the last tensor", data_bytes - position));
  }
  return header;
}

std::string render_safetensors_header(std::vector<TensorEntry>& entries,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& path) {
  std::string json = "{";
  if (!metadata.empty()) json += "\"__metadata__\":" + Json(metadata).dump() + ",";
  uint64_t position = 0;
  for (TensorEntry& e : entries) {
    SLX_CHECK(is_valid_utf8(e.name) && e.name != "__metadata__",
              "tensor name {} is not UTF-8, or is reserved", e.name);
    e.begin = position;
    e.end = position += static_cast<uint64_t>(e.num_elements() * tensor::dtype_bytes(e.dtype));
    json += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},",
                        Json(e.name).dump(), tensor::dtype_name(e.dtype), Json(e.shape).dump(),
                        e.begin, e.end);
  }
  if (json.back() == ',') json.pop_back();
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');
  if (json.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::kRun,
                fmt::format("the header of {} tensors takes {} bytes, but the format allows {}",
                            entries.size(), json.size(), kMaxHeaderBytes),
                "write more, smaller files", path);
  }
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return length + json;
}

}  // namespace slimexx::io

// The JSON header of a safetensors file, checked by the reference implementation's rules (Metadata
// and TensorInfo of the Rust crate). It also refuses four things that are useless or that two
// readers could interpret differently: duplicate keys, a tensor written as an array, a dimension
// of 2^63 or more, more than kMaxRank dimensions.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/io/safetensors.h"

namespace slimexx::io {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr uint64_t kHeaderLengthBytes = 8;
inline constexpr size_t kMaxRank = 1024;

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;  // by ascending offset
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> unsupported;  // tensor -> dtype that DType lacks
};

// The header's length from the file's first 8 bytes, checked against the limit and the file size. A
// ninth byte, if given, helps to recognise files of other formats.
uint64_t parse_header_length(std::string_view first_bytes, uint64_t file_bytes,
                             const std::string& path);

// `data_bytes`: the bytes after the header in the file.
SafetensorsHeader parse_safetensors_header(std::string_view json, uint64_t data_bytes,
                                           const std::string& path);

// The header's bytes, padded, with the 8-byte length in front. Sets begin and end of each entry.
std::string render_safetensors_header(std::vector<TensorEntry>& entries,
                                      const std::map<std::string, std::string>& metadata,
                                      const std::string& path);

}  // namespace slimexx::io

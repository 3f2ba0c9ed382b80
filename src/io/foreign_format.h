// Files that are given where lines of JSON are wanted, told by how they begin.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::io {

struct ForeignFormat {
  std::string what;  // "the file is a parquet file"
  std::string hint;  // the command that makes lines of JSON of it
};

// `start`: the first bytes of the file, up to its first line break at least. Nothing for what may
// be lines of JSON, broken ones too.
std::optional<ForeignFormat> find_foreign_format(std::string_view start, const std::string& path);

}  // namespace slimexx::io

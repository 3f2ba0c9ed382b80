// Recognises, by their first bytes, files in other formats that were given instead of JSON lines.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace slimexx::io {

struct ForeignFormat {
  std::string what;  // "the file is a parquet file"
  std::string hint;  // the command that converts it to JSON lines
};

// `start`: the first bytes of the file, at least up to its first line break. Gives nothing for
// files that may be JSON lines, even malformed ones.
std::optional<ForeignFormat> find_foreign_format(std::string_view start, const std::string& path);

}  // namespace slimexx::io

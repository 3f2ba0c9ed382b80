// Writes a verb's lines to the named file, which appears when it is complete, or to stdout.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slimexx/io/lines.h"

namespace slimexx::cli {

class ResultLines {
 public:
  // "" and "-" are stdout. Writes nothing if not `enabled` (other ranks).
  ResultLines(const std::string& path, bool enabled);
  void write(std::string_view line);
  void finish();
  int64_t num_lines() const { return num_lines_; }

 private:
  bool enabled_;
  std::optional<io::LineWriter> file_;
  int64_t num_lines_ = 0;
};

}  // namespace slimexx::cli

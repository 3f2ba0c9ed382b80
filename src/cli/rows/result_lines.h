// Where a verb's lines go: the named file, which appears when it is whole, or stdout.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "slimexx/io/lines.h"

namespace slimexx::cli {

class ResultLines {
 public:
  // "" and "-" are stdout. Not `enabled` (other ranks): nothing is written.
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

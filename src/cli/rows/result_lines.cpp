#include "cli/rows/result_lines.h"

#include "cli/standard_output.h"

namespace slimexx::cli {

ResultLines::ResultLines(const std::string& path, bool enabled) : enabled_(enabled) {
  if (enabled && !path.empty() && path != "-") file_.emplace(path);
}

void ResultLines::write(std::string_view line) {
  ++num_lines_;
  if (!enabled_) return;
  if (file_) return file_->write(line);
  write_stdout(line);
  write_stdout("\n");
}

void ResultLines::finish() {
  if (file_) file_->finish();
}

}  // namespace slimexx::cli

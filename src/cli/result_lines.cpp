#include "cli/result_lines.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "slimexx/base/error.h"

namespace slimexx::cli {
namespace {

void check_stdout(bool good) {
  if (good) return;
  throw Error(ErrorCode::kEnvironment,
              fmt::format("cannot write to stdout: {}", std::strerror(errno)),
              "name a file with --output");
}

}  // namespace

ResultLines::ResultLines(const std::string& path, bool enabled) : enabled_(enabled) {
  if (enabled && !path.empty() && path != "-") file_.emplace(path);
}

void ResultLines::write(std::string_view line) {
  ++num_lines_;
  if (!enabled_) return;
  if (file_) return file_->write(line);
  check_stdout(std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
               std::fputc('\n', stdout) != EOF);
}

void ResultLines::finish() {
  if (!enabled_) return;
  if (file_) return file_->finish();
  check_stdout(std::fflush(stdout) == 0);
}

}  // namespace slimexx::cli

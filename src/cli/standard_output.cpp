#include "cli/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "slimexx/base/error.h"

namespace slimexx::cli {
namespace {

[[noreturn]] void fail_writing(int error) {
  if (error == EPIPE) throw ReaderGone();
  throw Error(ErrorCode::kEnvironment, fmt::format("cannot write: {}", std::strerror(error)),
              "write the results to a file on a disk with free space, or to a terminal", "stdout");
}

}  // namespace

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_writing(errno);
}

void flush_stdout() {
  if (std::fflush(stdout) != 0) fail_writing(errno);
}

}  // namespace slimexx::cli

// The size of a check program's run, from its first argument. Without an argument it checks all:
//   small   quick under compute-sanitizer's memcheck
//   tiny    the fewest launches that cover every path of every kernel, for racecheck, which is a
//           hundred times slower or more
// A program without cases smaller than `small` treats both words the same.
#pragma once
#include <cstdio>
#include <cstring>

#include "tests/kernels/need_device.h"

namespace slimexx::kernels::testing {

enum class CheckSize { kAll, kSmall, kTiny };

// Also makes stdout line-buffered, so that the output of a killed program shows its progress. Exits
// if there is no device.
inline CheckSize read_check_size(int argc, char** argv) {
  need_device();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const char* word = argc > 1 ? argv[1] : "";
  if (std::strncmp(word, "--", 2) == 0) word += 2;
  if (std::strcmp(word, "tiny") == 0) return CheckSize::kTiny;
  return std::strcmp(word, "small") == 0 ? CheckSize::kSmall : CheckSize::kAll;
}

}  // namespace slimexx::kernels::testing

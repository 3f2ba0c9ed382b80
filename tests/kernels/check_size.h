// How much a check program does, from its first word. Without one it does all:
//   small   quick under compute-sanitizer's memcheck
//   tiny    the fewest launches that take every path of every kernel, for racecheck, which slows a
//           kernel by a hundred times and more
// A program without cases smaller than `small` treats both words the same.
#pragma once
#include <cstdio>
#include <cstring>

#include "tests/kernels/need_device.h"

namespace slimexx::kernels::testing {

enum class CheckSize { kAll, kSmall, kTiny };

// Makes stdout line-buffered, so that the output of a program that is stopped shows how far it got.
// Exits if there is no device.
inline CheckSize read_check_size(int argc, char** argv) {
  need_device();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const char* word = argc > 1 ? argv[1] : "";
  if (std::strncmp(word, "--", 2) == 0) word += 2;
  if (std::strcmp(word, "tiny") == 0) return CheckSize::kTiny;
  return std::strcmp(word, "small") == 0 ? CheckSize::kSmall : CheckSize::kAll;
}

}  // namespace slimexx::kernels::testing

// A hint for a size that does not divide another.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string>

namespace slimexx {

// "set it to 2 or 4": the divisors of `size` nearest to `wanted`, which is not a divisor.
inline std::string suggest_divisors(int64_t size, int64_t wanted) {
  int64_t below = std::min(wanted, size), above = wanted;
  while (size % below != 0) --below;
  while (above < size && size % above != 0) ++above;
  return above <= size ? fmt::format("set it to {} or {}", below, above)
                       : fmt::format("set it to {}", below);
}

}  // namespace slimexx

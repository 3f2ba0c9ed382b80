#include "slimexx/base/philox.h"

#include <cmath>
#include <numbers>

#include "slimexx/base/normals.h"

namespace slimexx {

uint64_t PhiloxStream::next_below(uint64_t bound) {
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  while (true) {
    const uint64_t high = next_word();
    const uint64_t value = high << 32 | next_word();
    if (value < limit) return value % bound;
  }
}

double normal_of_words(uint32_t first, uint32_t second) {
  const double u = (first + 0.5) * 0x1p-32;  // never 0, so the logarithm is finite
  const double v = (second + 0.5) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

double PhiloxStream::next_normal() {
  const uint32_t first = next_word();
  return normal_of_words(first, next_word());
}

}  // namespace slimexx

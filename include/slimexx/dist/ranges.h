// Half-open ranges of a flat array, and their split over ranks.
#pragma once
#include <cstdint>
#include <vector>

namespace slimexx::dist {

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// Splits n elements over `parts` ranks: contiguous and ascending, each length a multiple of
// `multiple` except the last.
std::vector<Range> split_range(int64_t n, int parts, int64_t multiple = 16);

}  // namespace slimexx::dist

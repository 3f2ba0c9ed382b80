#include "slimexx/dist/ranges.h"

#include <algorithm>

namespace slimexx::dist {

std::vector<Range> split_range(int64_t n, int parts, int64_t multiple) {
  const int64_t units = (n + multiple - 1) / multiple;
  const int64_t per_part = (units + parts - 1) / parts * multiple;
  std::vector<Range> ranges;
  for (int p = 0; p < parts; ++p)
    ranges.push_back({std::min(n, p * per_part), std::min(n, (p + 1) * per_part)});
  return ranges;
}

}  // namespace slimexx::dist

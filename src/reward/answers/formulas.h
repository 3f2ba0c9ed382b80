// The formulas of a text: between dollars, in \( \), \[ \] or an environment.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace slimexx::reward {

struct Span {
  size_t start = 0;           // of the delimiter
  size_t begin = 0, end = 0;  // of the content
  size_t stop = 0;            // after the closing delimiter
};

// In order, not nested. A dollar that looks like money ("$5 for the pen and $10") opens no formula,
// and neither does a delimiter that is never closed.
std::vector<Span> find_formulas(std::string_view text);

}  // namespace slimexx::reward

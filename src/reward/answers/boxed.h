// Finds all outermost \boxed{...} of a text.
#pragma once
#include <string_view>
#include <vector>

#include "reward/graders.h"

namespace slimexx::reward {

struct BoxedSpan {
  size_t start = 0;           // of the backslash
  size_t begin = 0, end = 0;  // of the content
  size_t stop = 0;            // after the closing brace
};

// `unclosed`: start of the content of a last box that never closes; npos if there is none.
std::vector<BoxedSpan> find_boxes(std::string_view text, size_t* unclosed = nullptr);

}  // namespace slimexx::reward

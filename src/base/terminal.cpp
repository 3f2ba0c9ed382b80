#include "slimexx/base/terminal.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace slimexx {

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool wants_colour() {
  const char* no_colour = std::getenv("NO_COLOR");
  return is_terminal() && (no_colour == nullptr || *no_colour == '\0');
}

}  // namespace slimexx

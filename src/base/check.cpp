#include "slimexx/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "slimexx/base/printable.h"

namespace slimexx::detail {

void check_failed(const char* file, int line, const char* expression, const std::string& detail) {
  std::fprintf(stderr,
               "internal error: %s:%d: %s%s%s\n"
               "  this is a bug in slimexx; please report it\n",
               file, line, expression, detail.empty() ? "" : ": ", make_printable(detail).c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace slimexx::detail

#include "io/quote_name.h"

#include "slimexx/base/printable.h"

namespace slimexx::io {

std::string quote_name(std::string_view name) { return '"' + make_printable(name, 160) + '"'; }

}  // namespace slimexx::io

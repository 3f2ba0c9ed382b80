// Quotes names from files for error messages.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::io {

// The name in double quotes, printable, at most 160 bytes.
std::string quote_name(std::string_view name);

}  // namespace slimexx::io

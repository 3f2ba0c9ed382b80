// Names from files, made fit for an error message.
#pragma once
#include <string>
#include <string_view>

namespace slimexx::io {

// In double quotes, printable, at most 160 bytes.
std::string quote_name(std::string_view name);

}  // namespace slimexx::io

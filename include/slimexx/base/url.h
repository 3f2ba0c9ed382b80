// Addresses in messages: user, password and query are nobody's business.
#pragma once
#include <string>
#include <string_view>

namespace slimexx {

// What stands in place of a part of an address.
inline constexpr const char* kHiddenPart = "***";

// `address` as messages may show it: "http://***@host/path?***". Doubtful ones lose too much rather
// than too little.
std::string hide_secrets(std::string_view address);

// `text` with that done to every address in it, SCHEME://... up to white space or a quote.
std::string hide_secrets_in_text(std::string_view text);

}  // namespace slimexx

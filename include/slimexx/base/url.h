// Hides the user, password and query of URLs in messages.
#pragma once
#include <string>
#include <string_view>

namespace slimexx {

// Replaces each hidden part.
inline constexpr const char* kHiddenPart = "***";

// `address` for messages: "http://***@host/path?***". If the parse is ambiguous, hides too much
// rather than too little.
std::string hide_secrets(std::string_view address);

// Applies hide_secrets to every SCHEME://... in `text`, up to white space or a quote.
std::string hide_secrets_in_text(std::string_view text);

}  // namespace slimexx

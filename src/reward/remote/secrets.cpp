#include "reward/remote/secrets.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "slimexx/base/strings.h"
#include "slimexx/base/url.h"

namespace slimexx::reward {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string decode_percent(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low < 0) {
      out += text[i] == '+' ? ' ' : text[i];
    } else {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    }
  }
  return out;
}

void add_secret(std::string_view part, std::vector<std::string>& secrets) {
  constexpr size_t kLeast = 3;  // a shorter secret occurs in every text and reveals nothing
  for (const std::string& secret : {std::string(part), decode_percent(part)})
    if (secret.size() >= kLeast && std::ranges::count(secrets, secret) == 0)
      secrets.push_back(secret);
}

void add_secrets_of(std::string_view address, std::vector<std::string>& secrets) {
  const size_t scheme = address.find("://");
  if (scheme != std::string_view::npos) address.remove_prefix(scheme + 3);
  const size_t at = address.rfind('@');
  if (at != std::string_view::npos) {
    add_secret(address.substr(0, at), secrets);
    for (const std::string& part : split(address.substr(0, at), ':')) add_secret(part, secrets);
    address.remove_prefix(at);
  }
  const size_t query = address.find_first_of("?#");
  if (query == std::string_view::npos) return;
  for (const std::string& piece : split(address.substr(query + 1), '#')) {
    add_secret(piece, secrets);
    for (const std::string& part : split(piece, '&')) {
      const size_t equals = part.find('=');
      add_secret(std::string_view(part).substr(equals == std::string::npos ? 0 : equals + 1),
                 secrets);
    }
  }
}

}  // namespace

std::vector<std::string> list_secrets(const std::string& address) {
  std::vector<std::string> secrets;
  add_secrets_of(address, secrets);
  for (const char* name :
       {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"})
    if (const char* proxy = std::getenv(name)) add_secrets_of(proxy, secrets);
  std::ranges::stable_sort(secrets, std::ranges::greater(), &std::string::size);
  return secrets;
}

std::string hide_all(std::string text, const std::vector<std::string>& secrets) {
  text = hide_secrets_in_text(text);
  for (const std::string& secret : secrets)
    for (size_t at = text.find(secret); at != std::string::npos; at = text.find(secret, at)) {
      text.replace(at, secret.size(), kHiddenPart);
      at += std::string_view(kHiddenPart).size();
    }
  return text;
}

}  // namespace slimexx::reward

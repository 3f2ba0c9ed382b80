// Secrets that messages about the reward service must not contain.
#pragma once
#include <string>
#include <vector>

namespace slimexx::reward {

// User, password and query values of `address` and of the proxies in the environment, both raw and
// decoded; the longest first.
std::vector<std::string> list_secrets(const std::string& address);

// `text` without those secrets and without the secrets of addresses in it: libcurl quotes the
// proxy's address, and a service its request.
std::string hide_all(std::string text, const std::vector<std::string>& secrets);

}  // namespace slimexx::reward

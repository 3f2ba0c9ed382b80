// What a message about the reward service must not repeat.
#pragma once
#include <string>
#include <vector>

namespace slimexx::reward {

// User, password and values of the query of `address`, as they stand and decoded, and those of the
// proxies that the environment names; the longest first.
std::vector<std::string> list_secrets(const std::string& address);

// `text` without those, and without the secrets of addresses in it: libcurl quotes a proxy's
// address, and a service its request.
std::string hide_all(std::string text, const std::vector<std::string>& secrets);

}  // namespace slimexx::reward

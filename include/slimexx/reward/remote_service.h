// Checks that the service of rm_type remote is reachable.
#pragma once
#include <string>

namespace slimexx::reward {

// Opens a connection to the address and closes it, within a few seconds, without sending a request.
// Returns an empty string if that works, otherwise the reason.
std::string find_service_fault(const std::string& rm_url);

}  // namespace slimexx::reward

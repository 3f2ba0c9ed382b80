// Whether the service of rm_type remote is there.
#pragma once
#include <string>

namespace slimexx::reward {

// Opens one connection to the address and closes it, within a few seconds. Empty if that works,
// else why not. The service is asked nothing.
std::string find_service_fault(const std::string& rm_url);

}  // namespace slimexx::reward

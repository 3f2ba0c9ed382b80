// Initializes libcurl once per process.
#pragma once

namespace slimexx::reward {

// Throws Error(kEnvironment) if libcurl does not start.
void initialize_curl();

}  // namespace slimexx::reward

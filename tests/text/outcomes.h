// The outcome of a call: its error message and its duration.
#pragma once
#include <ctime>
#include <functional>
#include <string>

#include "slimexx/base/error.h"

namespace slimexx::text {

inline std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// CPU time, which does not depend on the host's load.
inline double seconds_of(const std::function<void()>& action) {
  const std::clock_t start = std::clock();
  action();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace slimexx::text

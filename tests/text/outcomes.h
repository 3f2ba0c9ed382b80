// What a call says when it fails, and how long it takes.
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

// CPU time, which other load on the machine does not change.
inline double seconds_of(const std::function<void()>& action) {
  const std::clock_t start = std::clock();
  action();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

}  // namespace slimexx::text

// Checks of internal invariants: always enabled; a failure prints the values and the location, then
// aborts. Never use them for user input (throw Error instead).
#pragma once
#include <fmt/core.h>

#include <string>

namespace slimexx::detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const std::string& detail);
}

#define SLX_CHECK(condition, ...)                                     \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::slimexx::detail::check_failed(__FILE__, __LINE__, #condition, \
                                      ::fmt::format("" __VA_ARGS__)); \
  } while (false)

#define SLX_CHECK_OP_(a, op, b)                                                            \
  do {                                                                                     \
    const auto& slx_a_ = (a);                                                              \
    const auto& slx_b_ = (b);                                                              \
    if (!(slx_a_ op slx_b_)) [[unlikely]]                                                  \
      ::slimexx::detail::check_failed(__FILE__, __LINE__, #a " " #op " " #b,               \
                                      ::fmt::format("left {}, right {}", slx_a_, slx_b_)); \
  } while (false)
#define SLX_CHECK_EQ(a, b) SLX_CHECK_OP_(a, ==, b)
#define SLX_CHECK_NE(a, b) SLX_CHECK_OP_(a, !=, b)
#define SLX_CHECK_LT(a, b) SLX_CHECK_OP_(a, <, b)
#define SLX_CHECK_LE(a, b) SLX_CHECK_OP_(a, <=, b)
#define SLX_CHECK_GT(a, b) SLX_CHECK_OP_(a, >, b)
#define SLX_CHECK_GE(a, b) SLX_CHECK_OP_(a, >=, b)

// Logging. Lines go, printable (printable.h), to stderr (rank 0; warnings and errors of the others
// too) and, once open_log_file was called, to that rank's file. Callable from any thread; of ranks
// that are threads each has its own log (thread_rank.h).
#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

namespace slimexx {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void set_log_rank(int rank);
// Of the console; files take everything from debug up. Of thread ranks: before they start.
void set_log_level(LogLevel level);
void open_log_file(const std::string& path);
void log_line(LogLevel level, std::string_view text);

template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kDebug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace slimexx

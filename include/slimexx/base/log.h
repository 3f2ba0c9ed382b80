// Logging. Lines are made printable (printable.h). They go to stderr (for ranks other than 0: only
// warnings and errors) and, after open_log_file, to the rank's file. Any thread may log. Each rank
// that is a thread has its own log (thread_rank.h).
#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

namespace slimexx {

enum class LogLevel { kDebug, kInfo, kWarn, kError };

void set_log_rank(int rank);
// Sets the console's level; files get everything from debug up. With thread ranks, call it before
// they start.
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

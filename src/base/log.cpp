#include "slimexx/base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log_file.h"
#include "slimexx/base/printable.h"
#include "slimexx/base/terminal.h"
#include "slimexx/base/thread_rank.h"

namespace slimexx {
namespace {

constexpr size_t kMaxLineBytes = 8192;  // long, because users copy commands from the log

struct LogState {
  std::shared_ptr<spdlog::sinks::stderr_color_sink_mt> console =
      std::make_shared<spdlog::sinks::stderr_color_sink_mt>(
          wants_colour() ? spdlog::color_mode::always : spdlog::color_mode::never);
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("slimexx", console);
  spdlog::level::level_enum console_level;
  int rank = 0;
  std::string file_path;  // empty: none
  spdlog::sink_ptr file;

  explicit LogState(spdlog::level::level_enum level) : console_level(level) {
    logger->set_level(spdlog::level::debug);
    logger->flush_on(spdlog::level::info);
    apply();
  }
  void apply() {
    console->set_level(rank == 0 ? console_level : spdlog::level::warn);
    logger->set_pattern(rank == 0 ? "%^%L%$ %H:%M:%S %v"
                                  : fmt::format("%^%L%$ %H:%M:%S [rank {}] %v", rank));
  }
};

// One LogState per rank of this process (thread_rank.h).
struct LogStates {
  std::mutex mutex;
  std::map<int, LogState> by_rank;
  spdlog::level::level_enum level = spdlog::level::info;  // for new ranks
};

LogStates& states() {
  static LogStates instance;
  return instance;
}

LogState& state() {
  LogStates& all = states();
  const std::lock_guard lock(all.mutex);
  return all.by_rank.try_emplace(thread_rank(), all.level).first->second;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_rank(int rank) {
  state().rank = rank;
  state().apply();
}

void set_log_level(LogLevel level) {
  {
    const std::lock_guard lock(states().mutex);
    states().level = to_spdlog(level);
  }
  state().console_level = to_spdlog(level);
  state().apply();
}

void open_log_file(const std::string& path) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    sink->set_level(spdlog::level::debug);
    state().logger->sinks().push_back(sink);
    state().file = sink;
    state().file_path = path;
    state().apply();
  } catch (const spdlog::spdlog_ex& e) {
    throw Error(ErrorCode::kEnvironment, fmt::format("cannot open the log file: {}", e.what()),
                "choose a writable observe.run_dir", path);
  }
}

void keep_log_file() {
  LogState& own = state();
  if (own.file_path.empty() || path_exists(own.file_path)) return;
  std::erase(own.logger->sinks(), own.file);
  const std::string path = std::exchange(own.file_path, {});
  try {
    open_log_file(path);
    log_warn("{} was removed during the run; it is created again", path);
  } catch (const Error& error) {
    log_warn("{} was removed during the run and cannot be created again: {}", path,
             error.message());
  }
}

void log_line(LogLevel level, std::string_view text) {
  // Pass formatted text: a format string here would instantiate fmt's digit generator in this file,
  // where GCC 13 warns about array bounds.
  const std::string shown = make_printable_lines(text, kMaxLineBytes);
  state().logger->log(to_spdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
}

}  // namespace slimexx

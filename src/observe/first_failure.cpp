#include "observe/first_failure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "observe/append_file.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/observe/metrics.h"

namespace slimexx::observe {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

const double kProcessStart = seconds_now();

Json read_status(const std::string& path) {
  try {
    if (Json status = parse_json_file(path); status.is_object()) return status;
  } catch (const Error&) {  // missing or damaged
  }
  return Json::object();
}

std::string format_failure(const std::string& status_path, int64_t step, std::string_view error,
                           const FailurePlace& place) {
  const Json before = read_status(status_path);
  const auto kept = [&](const char* key) { return before.contains(key) ? before[key] : Json(); };
  Json status;
  status["state"] = "failed";
  status["step"] = step >= 0 ? Json(step) : kept("step");
  status["total_steps"] = kept("total_steps");
  status["eta_s"] = kept("eta_s");
  status["error"] = error;
  status["warning"] = nullptr;
  status["not_learning"] = kept("not_learning");
  status["failure"] = nullptr;
  if (place.rank >= 0) {
    status["failure"] = Json{{"rank", place.rank},
                             {"host", place.host},
                             {"phase", place.phase},
                             {"call", place.call.empty() ? Json(nullptr) : Json(place.call)}};
  }
  status["updated"] = std::round(seconds_now() * 1000) / 1000;
  return status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Whether another process of this run has recorded a failure. A status of an earlier run may say
// "failed" too, but is older than this process.
bool has_failed(const std::string& run_dir) {
  if (path_exists(first_failure_path(run_dir))) return true;
  const Json status = read_status(join_path(run_dir, "status.json"));
  return status.value("state", Json()) == "failed" && status.contains("updated") &&
         status["updated"].is_number() && status["updated"].get<double>() >= kProcessStart;
}

bool write_whole(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written;
}

}  // namespace

std::string first_failure_path(const std::string& run_dir) {
  return join_path(run_dir, "status.first_failure.json");
}

void forget_failure(const std::string& run_dir) {
  std::error_code ignored;
  std::filesystem::remove(first_failure_path(run_dir), ignored);
}

// Publishes a complete file with link(): only the first of several processes succeeds, even across
// hosts.
bool write_first_failure(const std::string& run_dir, int64_t step, std::string_view error,
                         const FailurePlace& place) {
  const std::string status_path = join_path(run_dir, "status.json");
  const std::string own =
      fmt::format("{}.{}.{}.tmp.{}", status_path, host_name(), ::gettid(), ::getpid());
  const std::string text = format_failure(status_path, step, error, place);
  if (!write_whole(own, text)) {
    ::unlink(own.c_str());
    if (has_failed(run_dir)) return false;
    // The disk is probably full: overwrite the old text in place.
    overwrite(status_path, text);
    return true;
  }
  const bool is_first =
      ::link(own.c_str(), first_failure_path(run_dir).c_str()) == 0 || errno != EEXIST;
  if (!is_first || ::rename(own.c_str(), status_path.c_str()) != 0) ::unlink(own.c_str());
  return is_first;
}

}  // namespace slimexx::observe

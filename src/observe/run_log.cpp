#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "observe/append_file.h"
#include "observe/event_file.h"
#include "observe/first_failure.h"
#include "observe/jsonl_file.h"
#include "observe/step_line.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/json.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/terminal.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/metrics.h"
#include "slimexx/observe/span.h"

namespace slimexx::observe {
namespace {

constexpr int64_t kHeaderInterval = 20;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Files that are first written under a temporary name. The temporary name for a failure's status
// contains host and thread.
bool is_run_file(std::string_view name) {
  return name == "metrics.jsonl" || name == "train_steps.jsonl" || name == "config.resolved.yaml" ||
         name == "status.json" || name.starts_with("status.json.");
}

// A name that sorts after earlier starts, because TensorBoard reads the files in name order.
std::string new_event_path(const std::string& directory) {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  const auto seconds = static_cast<int64_t>(wall_seconds());
  for (int n = 0;; ++n) {
    const std::string path = join_path(
        directory, fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host, getpid(), n));
    if (!path_exists(path)) return path;
  }
}

// `keys`: JSON members that identify the row, such as "\"step\": 3".
std::string format_row(const std::string& keys, double wall_time, const MetricRow& row) {
  std::string line = fmt::format("{{{}, \"wall_time\": {:.3f}", keys, wall_time);
  for (const auto& [name, value] : row.values())
    line += fmt::format(", {}: {}", Json(name).dump(), format_double(value));
  return line + "}\n";
}

}  // namespace

struct RunLog::Impl {
  explicit Impl(const Options& given)
      : options(given), step_line(given.resume_step, wants_colour()) {}
  ~Impl() {
    close_append(metrics_fd);
    close_append(train_steps_fd);
  }

  void open();
  static void open_events(std::optional<EventFile>& file, const std::string& directory,
                          int64_t restart_step);
  static void append_event(std::optional<EventFile>& file, const std::string& event);
  void note_step(int64_t step);
  double eta_seconds() const;
  void check_in_place() const;
  std::string status_path() const { return join_path(options.run_dir, "status.json"); }
  std::string format_status(std::string_view state, int64_t step, std::string_view error,
                            std::string_view warning) const;

  Options options;
  std::string metrics_path, train_steps_path;
  std::string not_learning;
  int metrics_fd = -1, train_steps_fd = -1;
  // Two event folders, which TensorBoard shows as two runs. A restart event discards later step
  // numbers, and rollouts and optimizer steps are numbered separately.
  std::optional<EventFile> events, train_step_events;
  StepLine step_line;
  int64_t lines_printed = 0;
  // Steps and times for the ETA. The first step includes warm-up and counts only until there are
  // later steps.
  int64_t start_ns = monotonic_ns(), first_end_ns = 0, last_end_ns = 0;
  int64_t first_step = -1, last_step = -1;
};

void RunLog::Impl::open() {
  make_directories(options.run_dir);
  remove_stale_temporaries(options.run_dir, is_run_file);
  metrics_path = join_path(options.run_dir, "metrics.jsonl");
  // A fresh start drops all rows of an earlier attempt, including step -1 (evaluation before
  // training).
  const int64_t first_dropped = options.resume_step > 0 ? options.resume_step : -1;
  trim_rows(metrics_path, "step", first_dropped);
  metrics_fd = open_append(metrics_path);
  train_steps_path = join_path(options.run_dir, "train_steps.jsonl");
  trim_rows(train_steps_path, "rollout", first_dropped);
  train_steps_fd = open_append(train_steps_path);
  if (!options.tensorboard) return;
  open_events(events, join_path(options.run_dir, "tb"), options.resume_step);
  open_events(train_step_events, join_path(options.run_dir, "tb/optimizer_steps"),
              options.resume_train_step + 1);
}

// Opens a file and tells TensorBoard to forget steps from `restart_step` on, because the folder may
// have events of an earlier attempt.
void RunLog::Impl::open_events(std::optional<EventFile>& file, const std::string& directory,
                               int64_t restart_step) {
  make_directories(directory);
  file.emplace(new_event_path(directory));
  file->append(encode_version_event(wall_seconds()));
  file->append(encode_restart_event(wall_seconds(), restart_step));
}

// A failure here does not end the run: metrics.jsonl has all values.
void RunLog::Impl::append_event(std::optional<EventFile>& file, const std::string& event) {
  if (!file) return;
  try {
    file->append(event);
  } catch (const Error& error) {
    log_warn("{}: {}; the run writes no further TensorBoard events", error.where(),
             error.message());
    file.reset();
  }
}

void RunLog::Impl::check_in_place() const {
  if (is_in_place(metrics_fd, metrics_path) && is_in_place(train_steps_fd, train_steps_path))
    return;
  throw Error(ErrorCode::kEnvironment,
              "the run folder was removed or replaced while the run was writing to it",
              "do not change a run folder while its run is active", metrics_path);
}

void RunLog::Impl::note_step(int64_t step) {
  if (step <= last_step) return;
  last_end_ns = monotonic_ns();
  if (first_step < 0) {
    first_step = step;
    first_end_ns = last_end_ns;
  }
  last_step = step;
}

double RunLog::Impl::eta_seconds() const {
  if (first_step < 0 || options.total_steps <= last_step) return -1;
  const double step_ns = last_step > first_step ? static_cast<double>(last_end_ns - first_end_ns) /
                                                      static_cast<double>(last_step - first_step)
                                                : static_cast<double>(first_end_ns - start_ns);
  return step_ns * 1e-9 * static_cast<double>(options.total_steps - 1 - last_step);
}

RunLog::RunLog(const Options& options) : impl_(std::make_unique<Impl>(options)) {
  if (options.enabled) impl_->open();
}

RunLog::~RunLog() = default;

const std::string& RunLog::run_dir() const { return impl_->options.run_dir; }

void RunLog::write_row(int64_t step, const MetricRow& row) {
  if (!impl_->options.enabled) return;
  impl_->check_in_place();
  const double now = wall_seconds();
  append_all(impl_->metrics_fd, impl_->metrics_path,
             format_row(fmt::format("\"step\": {}", step), now, row));
  Impl::append_event(impl_->events, encode_scalars_event(now, step, row.values()));
}

void RunLog::write_train_step(int64_t rollout, int64_t train_step, const MetricRow& row) {
  if (!impl_->options.enabled) return;
  const double now = wall_seconds();
  const std::string keys = fmt::format("\"step\": {}, \"rollout\": {}", train_step, rollout);
  append_all(impl_->train_steps_fd, impl_->train_steps_path, format_row(keys, now, row));
  Impl::append_event(impl_->train_step_events, encode_scalars_event(now, train_step, row.values()));
}

void RunLog::write_text(int64_t step, const std::string& tag, const std::string& markdown) {
  // Event.step is signed: -1 is the evaluation before training.
  Impl::append_event(impl_->events,
                     encode_text_event(wall_seconds(), step, tag, replace_invalid_utf8(markdown)));
}

void RunLog::print_step(int64_t step, const MetricRow& row) {
  if (!impl_->options.enabled) return;
  impl_->note_step(step);
  std::string text;
  if (impl_->lines_printed++ % kHeaderInterval == 0) text = StepLine::header(row) + "\n";
  text += impl_->step_line.format(step, row, impl_->eta_seconds()) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void RunLog::write_status(std::string_view state, int64_t step, std::string_view error,
                          std::string_view warning) {
  if (!impl_->options.enabled) return;
  impl_->check_in_place();
  // Never overwrite a recorded failure. Another rank may record one at any time, even during this
  // write: the launcher resumes a suspended rank before it kills it.
  const std::string failure = first_failure_path(impl_->options.run_dir);
  if (path_exists(failure)) return;
  write_file_atomic(impl_->status_path(), impl_->format_status(state, step, error, warning));
  if (path_exists(failure)) write_file_atomic(impl_->status_path(), read_text_file(failure));
}

void RunLog::set_not_learning(std::string why) { impl_->not_learning = std::move(why); }

void RunLog::write_failure(int64_t step, std::string_view error, const FailurePlace& place) {
  write_first_failure(impl_->options.run_dir, step, error, place);
}

std::string markdown_code(std::string_view text) {
  std::string out = "\n\n    ";
  for (const char c : text) out += c == '\n' ? std::string("\n    ") : std::string(1, c);
  return out + "\n\n";
}

std::string RunLog::Impl::format_status(std::string_view state, int64_t step,
                                        std::string_view error, std::string_view warning) const {
  Json status;
  status["state"] = state;
  status["step"] = step;
  status["total_steps"] = options.total_steps;
  const double eta = eta_seconds();
  status["eta_s"] = eta >= 0 ? Json(std::round(eta)) : Json(nullptr);
  status["error"] = error.empty() ? Json(nullptr) : Json(error);
  status["warning"] = warning.empty() ? Json(nullptr) : Json(warning);
  status["not_learning"] = not_learning.empty() ? Json(nullptr) : Json(not_learning);
  status["failure"] = nullptr;
  status["updated"] = std::round(wall_seconds() * 1000) / 1000;
  return status.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace slimexx::observe

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/terminal.h"
#include "slimexx/observe/console.h"
#include "slimexx/observe/span.h"

namespace slimexx::observe {
namespace {

constexpr double kQuietSeconds = 2.0;
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void write_stderr(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (n <= 0) return;  // the terminal is gone
    done += static_cast<size_t>(n);
  }
}

}  // namespace

struct ProgressBar::Impl {
  std::mutex mutex;
  std::condition_variable stop_signal;
  std::string label;
  int64_t total = 0, done = 0;
  int64_t start_ns = monotonic_ns();
  int64_t last_tenth = 0;
  bool terminal = false, stop = false, drawn = false;
  std::thread painter;

  double seconds() const { return static_cast<double>(monotonic_ns() - start_ns) * 1e-9; }
  double fraction() const {
    if (total <= 0) return 0;
    return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  }

  std::string describe() const {
    std::string text = fmt::format("{}/{}", done, total);
    const double share = fraction(), elapsed = seconds();
    text += "  " + format_duration(elapsed);
    if (share > 0 && share < 1)
      text += ", " + format_duration(elapsed * (1 - share) / share) + " left";
    return text;
  }

  // One terminal line; the caller holds the mutex.
  void draw() {
    const int cells = 24;
    const int full = static_cast<int>(fraction() * cells);
    std::string bar;
    for (int i = 0; i < cells; ++i) bar += i < full ? "\xE2\x96\x88" : "\xE2\x96\x91";
    const std::string line =
        fmt::format("{} {} {:3.0f}%  {}", label, bar, fraction() * 100, describe());
    write_stderr("\r" + fit_text(line, terminal_columns() - 1) + "\x1b[K");
    drawn = true;
  }

  void paint_until_stopped() {
    std::unique_lock lock(mutex);
    while (!stop_signal.wait_for(lock, kRedrawInterval, [this] { return stop; }))
      if (seconds() >= kQuietSeconds) draw();
    if (drawn) {
      draw();
      write_stderr("\n");
    }
  }

  // Without a terminal: one line at each tenth. The caller holds the mutex.
  void log_tenth() {
    const int64_t tenth = static_cast<int64_t>(fraction() * 10);
    if (tenth <= last_tenth || seconds() < kQuietSeconds) return;
    last_tenth = tenth;
    log_info("{}: {} %  {}", label, tenth * 10, describe());
  }
};

ProgressBar::ProgressBar(std::string label, int64_t total, bool enabled) {
  if (!enabled) return;
  impl_ = std::make_unique<Impl>();
  impl_->label = std::move(label);
  impl_->total = total;
  impl_->terminal = is_terminal();
  if (impl_->terminal) impl_->painter = std::thread([this] { impl_->paint_until_stopped(); });
}

ProgressBar::~ProgressBar() {
  if (!impl_ || !impl_->painter.joinable()) return;
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->stop_signal.notify_all();
  impl_->painter.join();
}

void ProgressBar::advance(int64_t n) {
  if (!impl_) return;
  std::lock_guard lock(impl_->mutex);
  impl_->done += n;
  if (!impl_->terminal) impl_->log_tenth();
}

void ProgressBar::advance_to(int64_t done) {
  if (!impl_) return;
  std::lock_guard lock(impl_->mutex);
  impl_->done = std::max(impl_->done, done);
  if (!impl_->terminal) impl_->log_tenth();
}

}  // namespace slimexx::observe

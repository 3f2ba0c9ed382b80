// Tables, progress bars and plots for a terminal. All use display width (East Asian wide
// characters, combining marks) and never print control characters from data.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::observe {

int64_t display_width(std::string_view utf8);
// Truncates to `width` columns with an ellipsis and keeps the head or the tail. Newlines and
// control characters become visible symbols.
std::string fit_text(std::string_view utf8, int64_t width, bool keep_tail = false);

struct TableColumn {
  std::string header;
  int64_t max_width = 40;
  bool right_align = false;
  bool keep_tail = false;
};
std::string format_table(const std::vector<TableColumn>& columns,
                         const std::vector<std::vector<std::string>>& rows);

// A line plot of values over their index, `width` x `height` character cells (braille dots), with
// axis labels and a title.
std::string plot_series(std::string_view title, const std::vector<double>& values, int width,
                        int height);

// A progress bar on a terminal (at most 10 updates per second); otherwise one line per 10 %. Shows
// nothing if `enabled` is false (other ranks) or if the phase ends within two seconds. Thread-safe.
class ProgressBar {
 public:
  ProgressBar(std::string label, int64_t total, bool enabled);
  ~ProgressBar();
  void advance(int64_t n = 1);
  void advance_to(int64_t done);  // never moves backwards

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace slimexx::observe

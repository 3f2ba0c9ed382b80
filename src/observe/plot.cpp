#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "slimexx/base/strings.h"
#include "slimexx/observe/console.h"

namespace slimexx::observe {
namespace {

struct Range {
  double low = 0, high = 0;
  bool any = false;
};

Range finite_range(const std::vector<double>& values) {
  Range range;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.low = range.any ? std::min(range.low, value) : value;
    range.high = range.any ? std::max(range.high, value) : value;
    range.any = true;
  }
  return range;
}

// Position of `value` in the range, in [0, 1]. Halves the values first, since high - low may
// overflow.
double position_in(const Range& range, double value) {
  const double span = range.high / 2 - range.low / 2;
  return span > 0 ? (value / 2 - range.low / 2) / span : 0.5;
}

// Splits the values into `bins` equal parts and returns the mean of the finite values of each; NaN
// if a part has none.
std::vector<double> shrink(const std::vector<double>& values, size_t bins) {
  if (values.size() <= bins) return values;
  std::vector<double> out(bins, std::nan(""));
  for (size_t bin = 0; bin < bins; ++bin) {
    const size_t first = bin * values.size() / bins, last = (bin + 1) * values.size() / bins;
    double mean = 0;
    size_t n = 0;
    for (size_t i = first; i < last; ++i)
      if (std::isfinite(values[i])) mean += (values[i] - mean) / static_cast<double>(++n);
    if (n > 0) out[bin] = mean;
  }
  return out;
}

// A canvas of braille characters with 2 x 4 dots each (Unicode block 2800 to 28FF; bit order
// 1 2 3 7 / 4 5 6 8).
class DotCanvas {
 public:
  DotCanvas(int width, int height)
      : width_(width), height_(height), cells_(static_cast<size_t>(width * height)) {}

  void set(int x, int y) {
    constexpr uint8_t kBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};
    if (x < 0 || y < 0 || x >= 2 * width_ || y >= 4 * height_) return;
    cells_[static_cast<size_t>((y / 4) * width_ + x / 2)] |= kBits[x % 2][y % 4];
  }
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }
  std::string row(int y) const {
    std::string out;
    for (int x = 0; x < width_; ++x)
      append_utf8(out, 0x2800u + cells_[static_cast<size_t>(y * width_ + x)]);
    return out;
  }

 private:
  int width_, height_;
  std::vector<uint8_t> cells_;
};

void draw_series(DotCanvas& canvas, const std::vector<double>& points, const Range& range,
                 int width, int height) {
  const int dots_x = 2 * width - 1, dots_y = 4 * height - 1;
  int last_x = -1, last_y = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i])) {
      last_x = -1;
      continue;
    }
    const double along =
        points.size() == 1 ? 0.0 : static_cast<double>(i) / static_cast<double>(points.size() - 1);
    const int x = static_cast<int>(std::lround(along * dots_x));
    const int y = static_cast<int>(std::lround((1 - position_in(range, points[i])) * dots_y));
    canvas.line(last_x < 0 ? x : last_x, last_x < 0 ? y : last_y, x, y);
    last_x = x;
    last_y = y;
  }
}

}  // namespace

std::string plot_series(std::string_view title, const std::vector<double>& values, int width,
                        int height) {
  width = std::clamp(width, 8, 400);
  height = std::clamp(height, 2, 200);
  std::string out = fit_text(title, width + 12) + "\n";
  const Range range = finite_range(values);
  if (!range.any) return out + "(no finite values)\n";
  DotCanvas canvas(width, height);
  draw_series(canvas, shrink(values, static_cast<size_t>(2 * width)), range, width, height);
  for (int y = 0; y < height; ++y) {
    std::string label;
    if (y == 0) label = fmt::format("{:.4g}", range.high);
    if (y == height - 1) label = fmt::format("{:.4g}", range.low);
    out += fmt::format("{:>10} {}{}\n", label,
                       y == 0 || y == height - 1 ? "\xE2\x94\xA4" : "\xE2\x94\x82", canvas.row(y));
  }
  const std::string last = std::to_string(values.size() - 1);
  return out + fmt::format("{:>10}  0{:>{}}\n", "", values.size() > 1 ? last : "", width - 1);
}

}  // namespace slimexx::observe

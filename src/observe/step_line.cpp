#include "observe/step_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "slimexx/base/strings.h"

namespace slimexx::observe {
namespace {

enum class Style { kFixed, kCompact, kPercent, kCount, kSeconds, kGib, kStep, kEta };

enum class Shown { kAlways, kReinforced, kSupervised };

struct Column {
  const char* header;
  int width;
  Style style;
  bool watch;  // mark a value that is far from earlier values
  // Alternatives with the same meaning; the column shows the first one that the row has.
  std::vector<const char*> names;
  Shown shown = Shown::kAlways;
};

const std::vector<Column>& columns() {
  constexpr Shown kReinforced = Shown::kReinforced;
  static const std::vector<Column> list = {
      {"step", 6, Style::kStep, false, {}},
      {"loss", 8, Style::kFixed, true, {"train/loss"}, Shown::kSupervised},
      {"reward",
       8,
       Style::kFixed,
       true,
       {"rollout/raw_reward", "rollout/raw_reward/mean"},
       kReinforced},
      {"pass@1", 7, Style::kFixed, false, {"passrate/pass@1"}, kReinforced},
      {"len", 6, Style::kCount, true, {"rollout/response_len/mean", "rollout/response_lengths"}},
      {"ref_kl", 8, Style::kCompact, true, {"train/ref_kl"}, kReinforced},
      {"clip%", 6, Style::kPercent, false, {"train/pg_clipfrac"}, kReinforced},
      {"H", 7, Style::kFixed, true, {"train/entropy", "train/entropy_loss"}},
      {"|g|", 8, Style::kCompact, true, {"train/grad_norm"}},
      {"lr", 8, Style::kCompact, false, {"train/lr"}},
      {"gen s", 7, Style::kSeconds, false, {"perf/rollout_time"}, kReinforced},
      {"train s", 8, Style::kSeconds, false, {"perf/actor_train_time", "perf/train_time"}},
      {"tok/s", 8, Style::kCount, false, {"perf/tokens_per_gpu_per_sec"}},
      {"GiB", 6, Style::kGib, false, {"sys/gpu_mem_peak_gib", "sys/mem_peak_gib"}},
      {"eta", 7, Style::kEta, false, {}},
  };
  return list;
}

bool is_shown(const Column& column, const MetricRow& row) {
  if (column.shown == Shown::kAlways) return true;
  const bool supervised = !row.find("rollout/raw_reward") && !row.find("rollout/raw_reward/mean") &&
                          row.find("train/loss");
  return supervised == (column.shown == Shown::kSupervised);
}

const double* find_any(const MetricRow& row, const std::vector<const char*>& names) {
  for (const char* name : names)
    if (const double* value = row.find(name)) return value;
  return nullptr;
}

std::string format_cell(Style style, double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  switch (style) {
    case Style::kFixed:
      return fmt::format("{:.4f}", value);
    case Style::kCompact:
      if (value == 0) return "0";
      return std::fabs(value) >= 0.01 && std::fabs(value) < 1000 ? fmt::format("{:.3f}", value)
                                                                 : fmt::format("{:.1e}", value);
    case Style::kPercent:
      return fmt::format("{:.2f}", 100 * value);
    case Style::kCount:
      return format_count(std::round(value));
    case Style::kSeconds:
      return fmt::format("{:.1f}", value);
    case Style::kGib:
      return fmt::format("{:.2f}", value);
    case Style::kStep:
    case Style::kEta:
      break;
  }
  return "";
}

constexpr double kZScoreLimit = 4;
constexpr double kClipLimit = 0.3;
constexpr int64_t kEnoughSteps = 10;

}  // namespace

void RunningMoments::add(double value) {
  if (!std::isfinite(value)) return;
  ++n_;
  const double delta = value - mean_;
  mean_ += delta / static_cast<double>(n_);
  m2_ += delta * (value - mean_);
}

double RunningMoments::z_score(double value) const {
  if (n_ < kEnoughSteps) return 0;
  const double deviation = std::sqrt(m2_ / static_cast<double>(n_ - 1));
  // The floor keeps rounding errors after constant values from being anomalies.
  const double floor = 1e-6 * std::fabs(mean_) + 1e-12;
  return std::fabs(value - mean_) / std::max(deviation, floor);
}

StepLine::StepLine(int64_t first_step, bool colour) : first_step_(first_step), colour_(colour) {}

std::string StepLine::header(const MetricRow& row) {
  std::string out;
  for (const Column& column : columns())
    if (is_shown(column, row))
      out += fmt::format("{}{:>{}}", out.empty() ? "" : " ", column.header, column.width);
  return out;
}

bool StepLine::is_anomaly(int column, int64_t step, const MetricRow& row, double value) {
  const Column& info = columns()[static_cast<size_t>(column)];
  RunningMoments& moments = moments_[column];
  const double z = info.watch ? moments.z_score(value) : 0;
  moments.add(value);
  if (!std::isfinite(value) || z > kZScoreLimit) return true;
  const std::string_view header = info.header;
  if (header == "clip%") return value > kClipLimit;
  // Before the first optimizer step the policy equals the reference, so ref_kl is only rounding.
  if (header == "ref_kl") return step == first_step_ && first_step_ == 0 && std::fabs(value) > 1e-4;
  if (header == "reward") {
    const double* same = row.find("rollout/zero_std/frac");
    return same != nullptr && *same >= 1;
  }
  return false;
}

std::string StepLine::format(int64_t step, const MetricRow& row, double eta_s) {
  std::string out;
  for (int i = 0; i < static_cast<int>(columns().size()); ++i) {
    const Column& column = columns()[static_cast<size_t>(i)];
    if (!is_shown(column, row)) continue;
    std::string text = "-";
    bool anomaly = false;
    if (column.style == Style::kStep) {
      text = std::to_string(step);
    } else if (column.style == Style::kEta) {
      if (eta_s >= 0) text = format_duration(eta_s);
    } else if (const double* value = find_any(row, column.names)) {
      text = format_cell(column.style, *value);
      anomaly = is_anomaly(i, step, row, *value);
    }
    text = fmt::format("{:>{}}", text, column.width);
    if (anomaly && colour_) text = "\x1b[31m" + text + "\x1b[0m";
    out += (i == 0 ? "" : " ") + text;
  }
  return out;
}

}  // namespace slimexx::observe

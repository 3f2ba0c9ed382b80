// The line that the console shows for each step.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/observe/metrics.h"

namespace slimexx::observe {

// Mean and variance of a column's values so far (Welford's recurrence).
class RunningMoments {
 public:
  void add(double value);
  // Distance of `value` from the mean in standard deviations; 0 before enough values were seen.
  double z_score(double value) const;

 private:
  int64_t n_ = 0;
  double mean_ = 0, m2_ = 0;
};

class StepLine {
 public:
  StepLine(int64_t first_step, bool colour);
  // The names of the columns that format() shows for `row`: supervised training has its own.
  static std::string header(const MetricRow& row);
  // One line without its line break. `eta_s` < 0: unknown.
  std::string format(int64_t step, const MetricRow& row, double eta_s);

 private:
  static constexpr int kNumColumns = 15;
  bool is_anomaly(int column, int64_t step, const MetricRow& row, double value);

  int64_t first_step_;
  bool colour_;
  RunningMoments moments_[kNumColumns];
};

}  // namespace slimexx::observe

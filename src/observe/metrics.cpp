#include "slimexx/observe/metrics.h"

#include <algorithm>
#include <cmath>

#include "slimexx/base/check.h"

namespace slimexx::observe {

void MetricRow::set(std::string_view name, double value) {
  const MetricInfo* info = find_metric(name);
  SLX_CHECK(info != nullptr, "the catalogue has no metric {}", name);
  for (auto& [known, slot] : values_) {
    if (known != name) continue;
    slot = value;
    return;
  }
  values_.emplace_back(name, value);
}

const double* MetricRow::find(std::string_view name) const {
  for (const auto& [known, value] : values_)
    if (known == name) return &value;
  return nullptr;
}

void MetricRow::merge(const MetricRow& other) {
  for (const auto& [name, value] : other.values_) set(name, value);
}

void set_statistics(MetricRow& row, const std::string& name, const std::vector<double>& values) {
  if (values.empty()) return;
  std::vector<double> sorted = values;
  // A NaN has no place in an order: if there is one, all four are NaN, as in numpy.
  const bool any_nan =
      std::any_of(sorted.begin(), sorted.end(), [](double v) { return std::isnan(v); });
  if (any_nan) sorted.assign(1, std::nan(""));
  std::sort(sorted.begin(), sorted.end());
  double sum = 0;
  for (const double value : sorted) sum += value;
  const size_t n = sorted.size(), middle = n / 2;
  row.set(name + "/mean", sum / static_cast<double>(n));
  row.set(name + "/median",
          n % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2);
  row.set(name + "/max", sorted.back());
  row.set(name + "/min", sorted.front());
}

}  // namespace slimexx::observe

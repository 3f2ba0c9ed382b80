#include "rl/config/response_lengths.h"

#include <algorithm>
#include <cmath>

#include "slimexx/base/check.h"

namespace slimexx::rl {
namespace {

// The mean of exponentially distributed lengths, cut off at `longest`, as a share of `longest`: (1
// - exp(-fall)) / fall with fall = rate * longest.
double mean_share(double fall) { return fall == 0 ? 1 : -std::expm1(-fall) / fall; }

}  // namespace

ResponseLengths::ResponseLengths(int64_t mean, int64_t longest)
    : mean_(static_cast<double>(mean)), longest_(static_cast<double>(longest)) {
  SLX_CHECK(0 < mean && mean <= longest, "mean {} of at most {}", mean, longest);
  if (mean == longest) return;
  double low = 0, high = 2 * longest_ / mean_;  // at `high` the share is below mean / longest
  for (int i = 0; i < 100; ++i) {
    const double fall = (low + high) / 2;
    (mean_share(fall) * longest_ > mean_ ? low : high) = fall;
  }
  rate_ = low / longest_;
}

double ResponseLengths::longer_than(double tokens) const {
  return tokens >= longest_ ? 0 : std::exp(-rate_ * tokens);
}

// Integral of t * longer_than(t) divided by the integral of longer_than(t).
double ResponseLengths::mean_age() const {
  if (rate_ == 0) return longest_ / 2;
  const double fall = rate_ * longest_;
  return (1 - std::exp(-fall) * (1 + fall)) / (rate_ * rate_) / mean_;
}

double ResponseLengths::integral(double begin, double end) const {
  return rate_ == 0 ? end - begin : (std::exp(-rate_ * begin) - std::exp(-rate_ * end)) / rate_;
}

std::vector<ResponseLengths::Stretch> ResponseLengths::list_stretches(double samples,
                                                                      double most_running) const {
  constexpr int kTailStretches = 64;  // the first ones are the shortest: most samples end there
  std::vector<Stretch> stretches;
  const double running = std::min(samples, most_running);
  if (samples > running)
    stretches.push_back({(samples - running) * mean_ / running, running, mean_age()});
  // Probability that at least one sample still runs: 1 - (1 - left)^running.
  const auto any_runs = [&](double age) {
    return -std::expm1(running * std::log1p(-std::exp(-rate_ * age)));
  };
  for (int i = 0; i < kTailStretches; ++i) {
    const auto edge = [&](int k) { return longest_ * k * k / (kTailStretches * kTailStretches); };
    const double begin = edge(i), end = edge(i + 1), middle = (begin + end) / 2;
    const double steps =
        (end - begin) * (any_runs(begin) + 4 * any_runs(middle) + any_runs(end)) / 6;
    if (steps > 0) stretches.push_back({steps, running * integral(begin, end) / steps, middle});
  }
  return stretches;
}

}  // namespace slimexx::rl

// Named, nested spans of time: one object feeds the timers of the metrics and the Chrome trace (and
// NVTX where CUDA is built in), and is the phase of what watches the ranks (activity.h). Names are
// the metric catalogue's perf names without "_time": "rollout", "actor_train", ....
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "slimexx/base/activity.h"

namespace slimexx::observe {

class Span {
 public:
  explicit Span(std::string_view name);
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  double seconds() const;  // since the start

 private:
  PhaseScope phase_;
  std::string name_;
  int64_t start_ns_;
};

int64_t monotonic_ns();

// Seconds by span name since the last call, summed over the finished spans of all threads (of
// thread ranks: of the calling thread's rank, as for a trace).
std::map<std::string, double> take_span_seconds();

// From now on spans are also kept (at most `max_events`) for write_trace: Chrome's trace format,
// pid = rank, tid = thread.
void enable_trace(int rank, int64_t max_events = 200000);
void write_trace(const std::string& path);  // nothing if tracing is off

}  // namespace slimexx::observe

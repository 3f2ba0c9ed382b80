// Named, nested time spans. A span feeds the metric timers, the Chrome trace and (with CUDA) NVTX,
// and sets the phase that the rank monitor shows (activity.h). Names are the perf/ names of the
// metric catalogue without "_time": "rollout", "actor_train", ....
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

// Seconds by span name since the last call, summed over the finished spans of all threads. With
// thread ranks, this function and the trace only cover the calling thread's rank.
std::map<std::string, double> take_span_seconds();

// From this call on, also records spans (at most `max_events`) for write_trace, in Chrome's trace
// format with pid = rank and tid = thread.
void enable_trace(int rank, int64_t max_events = 200000);
void write_trace(const std::string& path);  // does nothing if tracing is off

}  // namespace slimexx::observe

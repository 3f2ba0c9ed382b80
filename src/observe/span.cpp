#include "slimexx/observe/span.h"

#include <fmt/core.h>
#include <time.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "observe/nvtx.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"

namespace slimexx::observe {
namespace {

struct TraceEvent {
  std::string name;
  int64_t start_ns, end_ns;
};

// The finished spans of one thread. Its mutex is contended only during a collection, so a span
// costs two clock reads and one uncontended lock.
struct ThreadSpans {
  std::mutex mutex;
  int tid = 0;
  int rank = 0;  // thread_rank.h
  std::map<std::string, int64_t, std::less<>> totals_ns;
  std::vector<TraceEvent> events;
};

// The trace of one rank in this process (thread ranks have one each).
struct Trace {
  std::atomic<bool> tracing{false};
  std::atomic<int64_t> events_left{0};
  std::atomic<int64_t> events_dropped{0};
  int rank = 0;
  int64_t origin_ns = 0;
};

struct SpanState {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadSpans>> threads;  // kept after their threads have ended
  std::map<int, Trace> traces;                        // by thread_rank()
};

// Never destroyed: threads may still end their spans while the program exits.
SpanState& state() {
  static auto* instance = new SpanState;
  return *instance;
}

// The calling thread's spans, and the trace of its rank. The rank is read at the thread's first
// call of this_thread().
struct ThreadPlace {
  std::shared_ptr<ThreadSpans> spans;
  Trace* trace = nullptr;
};

ThreadPlace& this_thread() {
  thread_local ThreadPlace place = [] {
    ThreadPlace fresh{std::make_shared<ThreadSpans>()};
    std::lock_guard lock(state().mutex);
    fresh.spans->tid = static_cast<int>(state().threads.size());
    fresh.spans->rank = thread_rank();
    fresh.trace = &state().traces[thread_rank()];
    state().threads.push_back(fresh.spans);
    return fresh;
  }();
  return place;
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

Span::Span(std::string_view name) : phase_(name), name_(name), start_ns_(monotonic_ns()) {
  begin_nvtx_range(name_.c_str());
}

Span::~Span() {
  const int64_t end_ns = monotonic_ns();
  end_nvtx_range();
  ThreadSpans& spans = *this_thread().spans;
  std::lock_guard lock(spans.mutex);
  auto found = spans.totals_ns.find(name_);
  if (found == spans.totals_ns.end()) found = spans.totals_ns.emplace(name_, 0).first;
  found->second += end_ns - start_ns_;
  Trace& trace = *this_thread().trace;
  if (!trace.tracing.load(std::memory_order_relaxed)) return;
  if (trace.events_left.fetch_sub(1, std::memory_order_relaxed) > 0) {
    spans.events.push_back({std::move(name_), start_ns_, end_ns});
  } else {
    trace.events_dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

double Span::seconds() const { return static_cast<double>(monotonic_ns() - start_ns_) * 1e-9; }

std::map<std::string, double> take_span_seconds() {
  std::map<std::string, double> seconds;
  std::lock_guard lock(state().mutex);
  for (const auto& spans : state().threads) {
    if (spans->rank != thread_rank()) continue;
    std::lock_guard inner(spans->mutex);
    for (const auto& [name, ns] : spans->totals_ns) seconds[name] += static_cast<double>(ns) * 1e-9;
    spans->totals_ns.clear();
  }
  return seconds;
}

void enable_trace(int rank, int64_t max_events) {
  SpanState& all = state();
  std::lock_guard lock(all.mutex);
  Trace& trace = all.traces[thread_rank()];
  trace.rank = rank;
  trace.origin_ns = monotonic_ns();
  trace.events_left = max_events;
  trace.events_dropped = 0;
  for (const auto& spans : all.threads) {
    if (spans->rank != thread_rank()) continue;
    std::lock_guard inner(spans->mutex);
    spans->events.clear();
  }
  trace.tracing = true;
}

// Complete events ("ph": "X") with microseconds, as in Google's "Trace Event Format".
void write_trace(const std::string& path) {
  SpanState& all = state();
  const Trace& trace = *this_thread().trace;
  if (!trace.tracing) return;
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  {
    std::lock_guard lock(all.mutex);
    out += fmt::format(
        "{{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": {0}, \"args\": {{\"name\": \"rank "
        "{0}\"}}}}",
        trace.rank);
    for (const auto& spans : all.threads) {
      if (spans->rank != thread_rank()) continue;
      std::lock_guard inner(spans->mutex);
      for (const TraceEvent& event : spans->events) {
        const std::string name =
            nlohmann::json(event.name)
                .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        out += fmt::format(
            ",\n{{\"name\": {}, \"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, \"dur\": "
            "{:.3f}}}",
            name, trace.rank, spans->tid,
            static_cast<double>(event.start_ns - trace.origin_ns) * 1e-3,
            static_cast<double>(event.end_ns - event.start_ns) * 1e-3);
      }
    }
  }
  out += "\n]}\n";
  write_file_atomic(path, out);
  if (const int64_t dropped = trace.events_dropped.load(); dropped > 0)
    log_warn("{}: the trace lacks {} spans, which exceeded its limit", path, dropped);
}

}  // namespace slimexx::observe

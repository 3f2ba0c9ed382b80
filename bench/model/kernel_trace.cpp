// A library that the driver loads into any CUDA program. It times every kernel, also those of
// recorded graphs, and prints an average step. The times are CUPTI activity records: kernels are
// not serialised, so programmatic dependent launches still overlap.
//
//   CUDA_INJECTION64_PATH=build/cuda/bench/libkernel_trace.so build/cuda/bench/model_bench ...
//
// A step ends with a kernel whose name contains SLX_TRACE_LAST (default copy_samples_to_host). The
// average is over those of the last 400 steps that have the most frequent number of kernels. The
// output, in microseconds, is each kernel in order, at most SLX_TRACE_ROWS (default 90) of them,
// then sums by kernel and grid. `gap`: time from the latest end of all earlier kernels to the start
// of this kernel, negative if they overlap. `alone`: how much this kernel lengthens the step.
//
// With SLX_TRACE_BETWEEN_RANKS=1 the library considers the time from the first to the last
// SLX_TRACE_LAST kernel instead. It prints how long communication kernels ran (NCCL's and those of
// peers.h), how long they ran with no other kernel beside them, and how long no kernel ran. The
// first two times include waits for other ranks. For training set SLX_TRACE_LAST=adamw.
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Kernel {
  uint64_t start, end;
  const char* name;
  unsigned grid, threads, shared_kib;
};

// Global state of the process. Leaked, so that it outlives the program's static objects.
std::mutex& mutex() {
  static auto* m = new std::mutex;
  return *m;
}
std::vector<Kernel>& kernels() {
  static auto* v = new std::vector<Kernel>;
  return *v;
}

std::string short_name(const char* mangled) {
  int status = 0;
  char* plain = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : mangled;
  std::free(plain);
  for (const char* noise :
       {"slimexx::kernels::", "(anonymous namespace)::", "void ", "rows::", "(bool)", "(int)"}) {
    for (size_t at; (at = name.find(noise)) != std::string::npos;)
      name.erase(at, std::string(noise).size());
  }
  const size_t arguments = name.find('(');
  return name.substr(0, std::min<size_t>(arguments, 64));
}

void CUPTIAPI request_buffer(uint8_t** buffer, size_t* size, size_t* most) {
  *size = size_t{8} << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *most = 0;
}

void CUPTIAPI take_buffer(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex());
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* k = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    kernels().push_back(
        {k->start, k->end, k->name, static_cast<unsigned>(k->gridX * k->gridY * k->gridZ),
         static_cast<unsigned>(k->blockX * k->blockY * k->blockZ),
         static_cast<unsigned>((k->dynamicSharedMemory + k->staticSharedMemory) / 1024)});
  }
  std::free(buffer);
}

struct Sums {
  double time = 0, gap = 0, alone = 0;
  int count = 0;
};

void print_sums(const std::string& name, const Sums& s, double steps, double each) {
  std::printf("%8.2f %8.2f %8.2f  %6.1f x  %s\n", s.time / each, s.gap / each, s.alone / steps,
              s.count / steps, name.c_str());
}

// The time during which at least one kernel runs for which `counts` is true. `all` is sorted by
// start.
template <class Counts>
double covered_ms(const std::vector<Kernel>& all, uint64_t begin, uint64_t end, Counts counts) {
  uint64_t covered = 0, until = begin;
  for (const Kernel& k : all) {
    if (!counts(k)) continue;
    const uint64_t from = std::max(k.start, until), to = std::min(k.end, end);
    if (from >= to) continue;
    covered += to - from;
    until = to;
  }
  return 1e-6 * static_cast<double>(covered);
}

void report_between_ranks(const std::vector<Kernel>& all, const std::string& last_name) {
  const auto is_last = [&](const Kernel& k) {
    return std::string(k.name).find(last_name) != std::string::npos;
  };
  const auto first = std::find_if(all.begin(), all.end(), is_last);
  const auto last = std::find_if(all.rbegin(), all.rend(), is_last);
  if (first == all.end() || last->end <= first->end) return;
  const uint64_t begin = first->end, end = last->end;
  const auto is_between = [](const Kernel& k) {
    const std::string name = k.name;
    for (const char* part :
         {"nccl", "fetch_rows_kernel", "return_rows_kernel", "move_values_kernel",
          "find_runs_kernel", "barrier_kernel", "_peers_kernel"})
      if (name.find(part) != std::string::npos) return true;
    return false;
  };
  const double whole = 1e-6 * static_cast<double>(end - begin);
  const double any = covered_ms(all, begin, end, [](const Kernel&) { return true; });
  const double own = covered_ms(all, begin, end, [&](const Kernel& k) { return !is_between(k); });
  const double between = covered_ms(all, begin, end, is_between);
  std::printf(
      "%.1f ms from the first to the last %s: communication %.1f ms (%.1f %%), communication alone "
      "%.1f ms (%.1f %%), no kernel %.1f ms (%.1f %%)\n",
      whole, last_name.c_str(), between, 100 * between / whole, any - own,
      100 * (any - own) / whole, whole - any, 100 * (whole - any) / whole);
  std::fflush(stdout);
}

void report() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex());
  std::vector<Kernel>& all = kernels();
  std::sort(all.begin(), all.end(),
            [](const Kernel& a, const Kernel& b) { return a.start < b.start; });
  const char* last_text = std::getenv("SLX_TRACE_LAST");
  const std::string last_name = last_text != nullptr ? last_text : "copy_samples_to_host";
  if (std::getenv("SLX_TRACE_BETWEEN_RANKS") != nullptr)
    return report_between_ranks(all, last_name);
  const char* rows_text = std::getenv("SLX_TRACE_ROWS");
  const size_t rows = rows_text != nullptr ? std::strtoul(rows_text, nullptr, 10) : 90;
  std::vector<std::pair<size_t, size_t>> steps;  // indices [first, last] in `all`
  size_t first = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::string(all[i].name).find(last_name) == std::string::npos) continue;
    steps.emplace_back(first, i);
    first = i + 1;
  }
  if (steps.size() > 400) steps.erase(steps.begin(), steps.end() - 400);
  std::map<size_t, int> lengths;
  for (const auto& [from, to] : steps) ++lengths[to - from + 1];
  size_t usual = 0;
  for (const auto& [length, count] : lengths) usual = count > lengths[usual] ? length : usual;
  std::printf("%zu kernels recorded, %zu steps considered, most with %zu kernels\n", all.size(),
              steps.size(), usual);
  if (usual == 0) return;
  std::vector<Sums> by_place(usual);
  double total = 0, num_steps = 0;
  for (const auto& [from, to] : steps) {
    if (to - from + 1 != usual || from == 0) continue;
    uint64_t end = all[from - 1].end;
    num_steps += 1;
    for (size_t i = from; i <= to; ++i) {
      Sums& s = by_place[i - from];
      s.time += 1e-3 * static_cast<double>(all[i].end - all[i].start);
      s.gap += 1e-3 * (static_cast<double>(all[i].start) - static_cast<double>(end));
      s.alone += 1e-3 * static_cast<double>(all[i].end > end ? all[i].end - end : 0);
      s.count += 1;
      end = std::max(end, all[i].end);
    }
    total += 1e-3 * static_cast<double>(end - all[from - 1].end);
  }
  const auto [sample_first, sample_last] = *std::find_if(
      steps.rbegin(), steps.rend(), [&](const auto& s) { return s.second - s.first + 1 == usual; });
  std::printf("mean step %.1f us over %.0f steps\n    time      gap    alone\n", total / num_steps,
              num_steps);
  std::map<std::string, Sums> by_name;
  for (size_t i = 0; i < usual; ++i) {
    const Kernel& k = all[sample_first + i];
    const std::string name = short_name(k.name) + " <<<" + std::to_string(k.grid) + ", " +
                             std::to_string(k.threads) + ", " + std::to_string(k.shared_kib) +
                             " KiB>>>";
    if (i < rows) print_sums(name, by_place[i], num_steps, num_steps);
    Sums& s = by_name[name];
    s.time += by_place[i].time, s.gap += by_place[i].gap, s.alone += by_place[i].alone,
        s.count += by_place[i].count;
  }
  std::vector<std::pair<std::string, Sums>> sorted(by_name.begin(), by_name.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.alone > b.second.alone; });
  std::printf("by kernel and grid: mean time, mean gap, sum of a step's `alone`\n");
  for (const auto& [name, s] : sorted) print_sums(name, s, num_steps, s.count);
  std::fflush(stdout);
}

}  // namespace

// The driver calls this when it loads the library.
extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(request_buffer, take_buffer) != CUPTI_SUCCESS ||
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS) {
    std::fprintf(
        stderr,
        "kernel_trace: CUPTI did not start, so nothing is traced; is another profiler active?\n");
    return 0;
  }
  std::atexit(report);
  return 1;
}

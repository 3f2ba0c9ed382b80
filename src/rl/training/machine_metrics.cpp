// Memory and disk that this process uses.
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "rl/training/stages.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

constexpr double kGib = 0x1p30;
const int64_t kProgramStart = observe::monotonic_ns();

double peak_memory_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / kGib;  // KiB
}

double page_gib(int64_t pages) {
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / kGib;
}

}  // namespace

void set_machine_metrics(const std::string& run_dir, int num_ranks, observe::MetricRow& row) {
  double peak = peak_memory_gib();  // the kernel may update it later than statm
  std::ifstream statm("/proc/self/statm");
  if (int64_t total = 0, resident = 0; statm >> total >> resident) {
    row.set("sys/mem_used_gib", page_gib(resident));
    peak = std::max(peak, page_gib(resident));
  }
  row.set("sys/mem_peak_gib", peak);
  row.set("sys/mem_total_gib", page_gib(sysconf(_SC_PHYS_PAGES)));
  struct statvfs disk {};
  if (statvfs(run_dir.c_str(), &disk) == 0)
    row.set("sys/disk_free_gib",
            static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize) / kGib);
  row.set("sys/num_ranks", num_ranks);
  row.set("sys/num_threads", num_threads());
  row.set("sys/uptime", static_cast<double>(observe::monotonic_ns() - kProgramStart) * 1e-9);
}

}  // namespace slimexx::rl

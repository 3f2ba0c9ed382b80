#include "doctor/host_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "slimexx/base/host_memory.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/dist/launcher.h"

namespace slimexx::doctor {
namespace {
namespace fs = std::filesystem;

constexpr const char* kNodes = "/sys/devices/system/node";

// The first line of the file; empty if it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void read_numa_nodes(RankFacts& facts) {
  std::error_code error;
  facts.host_numa_nodes = 0;
  for (const auto& entry : fs::directory_iterator(kNodes, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node") || name.size() == 4) continue;
    const std::vector<int> cores = parse_cpu_list(first_line(entry.path().string() + "/cpulist"));
    if (cores.empty()) continue;  // a node with only memory
    ++facts.host_numa_nodes;
    if (std::ranges::any_of(cores,
                            [&](int core) { return std::ranges::count(facts.cores, core) > 0; }))
      facts.numa_nodes.push_back(std::atoi(name.c_str() + 4));
  }
  std::ranges::sort(facts.numa_nodes);
  if (facts.host_numa_nodes > 0) return;
  facts.host_numa_nodes = 1;  // none listed: a kernel without NUMA, or no /sys in the container
  facts.numa_nodes = {0};
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  constexpr int kMost = 1 << 16;  // far above any range from the kernel
  std::vector<int> cores;
  for (const std::string& item : split(std::string(trim(text)), ',')) {
    int first = 0;
    const char* const end = item.data() + item.size();
    auto [rest, error] = std::from_chars(item.data(), end, first);
    if (error != std::errc()) break;
    int last = first;
    if (rest != end && *rest == '-') {
      const auto parsed = std::from_chars(rest + 1, end, last);
      if (parsed.ec != std::errc()) break;
      rest = parsed.ptr;
    }
    if (rest != end || first < 0 || last < first || last >= kMost) break;
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

void read_host_facts(RankFacts& facts) {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  facts.host = name;
  const auto launch = dist::find_launch([](const char* variable) { return std::getenv(variable); });
  facts.launched_ranks = launch.is_certain ? static_cast<int>(launch.num_tasks) : 0;
  facts.cores = own_cores();
  facts.host_cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  facts.num_threads = num_threads();
  read_numa_nodes(facts);
  const HostMemory memory = host_memory();
  facts.memory_total_bytes = memory.total_bytes;
  facts.memory_free_bytes = memory.free_bytes;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0)
    facts.open_files_limit = files.rlim_cur == RLIM_INFINITY ? std::numeric_limits<int64_t>::max()
                                                             : static_cast<int64_t>(files.rlim_cur);
  facts.host_has_gpu_driver = fs::exists("/proc/driver/nvidia/version");
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  facts.gpus_are_hidden = visible != nullptr && (*visible == '\0' || *visible == '-');
}

}  // namespace slimexx::doctor

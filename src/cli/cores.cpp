#include "cli/cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "slimexx/base/log.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/world.h"

namespace slimexx::cli {
namespace {

constexpr size_t kHostBytes = 256;

std::string host_and_cores() {
  std::string bytes(kHostBytes + sizeof(cpu_set_t), '\0');
  gethostname(bytes.data(), kHostBytes - 1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_SET(0, &cores);
  std::memcpy(bytes.data() + kHostBytes, &cores, sizeof(cores));
  return bytes;
}

cpu_set_t cores_of(const std::string& bytes) {
  cpu_set_t cores;
  std::memcpy(&cores, bytes.data() + kHostBytes, sizeof(cores));
  return cores;
}

}  // namespace

int cores_of_this_rank(dist::World& world) {
  const std::string mine = host_and_cores();
  const cpu_set_t my_cores = cores_of(mine);
  int sharers = 0, ranks_of_host = 0;
  for (const std::string& other : dist::all_gather_bytes(world.ranks(), mine)) {
    if (other.compare(0, kHostBytes, mine, 0, kHostBytes) != 0) continue;
    ++ranks_of_host;
    const cpu_set_t their_cores = cores_of(other);
    cpu_set_t both;
    CPU_AND(&both, &my_cores, &their_cores);
    sharers += CPU_COUNT(&both) > 0;
  }
  const std::string warning =
      describe_narrow_binding(CPU_COUNT(&my_cores), sysconf(_SC_NPROCESSORS_ONLN), ranks_of_host);
  if (world.rank() == 0 && !warning.empty()) log_warn("{}", warning);
  return std::max(1, CPU_COUNT(&my_cores) / std::max(1, sharers));
}

std::string describe_narrow_binding(int cores, int64_t host_cores, int ranks) {
  if (ranks < 2 || cores > 1 || host_cores < int64_t{4} * ranks) return {};
  return fmt::format(
      "each of the {} ranks on this host may use only 1 of its {} cores, which slows the start and "
      "every step: mpirun binds ranks to cores by default; add --bind-to none, or --map-by "
      "slot:PE=N",
      ranks, host_cores);
}

}  // namespace slimexx::cli

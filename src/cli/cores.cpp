#include "cli/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

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
  int sharers = 0;
  for (const std::string& other : dist::all_gather_bytes(world.ranks(), mine)) {
    if (other.compare(0, kHostBytes, mine, 0, kHostBytes) != 0) continue;
    const cpu_set_t their_cores = cores_of(other);
    cpu_set_t both;
    CPU_AND(&both, &my_cores, &their_cores);
    sharers += CPU_COUNT(&both) > 0;
  }
  return std::max(1, CPU_COUNT(&my_cores) / std::max(1, sharers));
}

}  // namespace slimexx::cli

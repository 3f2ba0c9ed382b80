#include <cstdio>

#include "dist/collective_contract.h"
#include "slimexx/dist/world.h"

int main() {
  using namespace slimexx::dist;
  World world;
  std::string fault = check_collective(world.ranks(), {});
  if (fault.empty()) fault = check_host(world.ranks());
  if (!fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    world.abort(1);
    return 1;
  }
  if (world.rank() == 0) std::printf("%d ranks: ok\n", world.size());
  return 0;
}

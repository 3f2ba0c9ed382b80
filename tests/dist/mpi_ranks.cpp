#include <cstdio>

#include "dist/collective_cases.h"

int main() {
  slimexx::dist::World world;
  const std::string fault = slimexx::dist::check_collectives(world.communicator());
  if (!fault.empty()) {
    std::fprintf(stderr, "%s\n", fault.c_str());
    world.abort(1);
    return 1;
  }
  if (world.rank() == 0) std::printf("%d ranks: ok\n", world.size());
  return 0;
}

#include "slimexx/kernels/device.h"

#include <atomic>
#include <cstdlib>

namespace slimexx::kernels {
namespace {

int read_limit() {
  const char* text = std::getenv("SLX_MULTIPROCESSORS");
  const int most = text == nullptr ? 0 : std::atoi(text);
  return most > 0 ? most : 0;
}

std::atomic<int>& limit() {
  static std::atomic<int> most = read_limit();
  return most;
}

}  // namespace

void limit_multiprocessors(int most) { limit().store(most > 0 ? most : 0); }
int multiprocessor_limit() { return limit().load(std::memory_order_relaxed); }

}  // namespace slimexx::kernels

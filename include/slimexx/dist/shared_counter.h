// A counter shared by all ranks, used as the ticket source of the shared prompt queue.
#pragma once
#include <cstdint>

namespace slimexx::dist {

// fetch_add is atomic over ranks and needs no action of the owner. Call it from any thread that may
// call the Collective that made the counter.
class SharedCounter {
 public:
  virtual ~SharedCounter() = default;
  virtual int64_t fetch_add(int64_t amount) = 0;
};

}  // namespace slimexx::dist

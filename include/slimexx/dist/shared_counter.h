// One number that every rank may draw tickets from: the shared prompt queue.
#pragma once
#include <cstdint>

namespace slimexx::dist {

// fetch_add is atomic over ranks and needs no cooperation of the owner. Any thread that may call
// the collective it came from.
class SharedCounter {
 public:
  virtual ~SharedCounter() = default;
  virtual int64_t fetch_add(int64_t amount) = 0;
};

}  // namespace slimexx::dist

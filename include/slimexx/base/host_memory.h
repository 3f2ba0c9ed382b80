// Memory of the host, or of the container around this process.
#pragma once

#include <cstdint>

namespace slimexx {

// In bytes. `free_bytes` includes memory that the kernel can reclaim, such as cached files.
struct HostMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// Current values from the system; 0 if unknown.
HostMemory host_memory();

}  // namespace slimexx

// What the host, or the container around this process, has of memory.
#pragma once

#include <cstdint>

namespace slimexx {

// Bytes. `free_bytes` counts what the kernel gives back when it is asked, such as cached files.
struct HostMemory {
  int64_t total_bytes = 0;
  int64_t free_bytes = 0;
};

// As the system says now; zeros where it does not say.
HostMemory host_memory();

}  // namespace slimexx

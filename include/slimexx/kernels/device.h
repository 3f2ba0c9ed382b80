// The device that launches are shaped for.
#pragma once

namespace slimexx::kernels {

// Shapes launches as for a device of at most so many multiprocessors; 0: no limit. For tests of
// smaller chips (an H20 has 78, an H100 PCIe 114, a MIG slice fewer) on a large one: no kernel's
// result may depend on the number. The environment variable SLX_MULTIPROCESSORS sets it for a whole
// process. Any thread.
void limit_multiprocessors(int most);
int multiprocessor_limit();

}  // namespace slimexx::kernels

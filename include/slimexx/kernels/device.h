// A limit on the SMs that launches are sized for.
#pragma once

namespace slimexx::kernels {

// Sizes launches for at most `most` SMs; 0: no limit. For tests: a large GPU then launches as a
// small one (an H20 has 78 SMs, an H100 PCIe 114, a MIG slice fewer). No kernel's result may depend
// on the limit. The environment variable SLX_MULTIPROCESSORS sets the limit for a whole process.
// Any thread may call these functions.
void limit_multiprocessors(int most);
int multiprocessor_limit();

}  // namespace slimexx::kernels

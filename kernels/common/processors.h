// Of the chip that launches are shaped for.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

// Multiprocessors of an H100 SXM, an H200 and a GH200. A constant even on a chip with fewer: norms
// and heads cut their partial sums of gradients by it, so that bits do not depend on the chip.
// Attention's forward asks the device (count_processors): its bits do not depend on the number.
inline constexpr int64_t kMultiprocessors = 132;

}  // namespace slimexx::kernels

// The largest sizes of a model that the device's kernels serve.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

inline constexpr int64_t kMaxRowWidth = 16384;               // of a norm
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 18;  // that is sampled from

}  // namespace slimexx::kernels

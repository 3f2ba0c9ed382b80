// Sizes of a model that ops serve on a device; the CPU serves any.
#pragma once
#include "slimexx/kernels/limits.h"

namespace slimexx::ops {

using kernels::kMaxRowWidth;
using kernels::kMaxVocabulary;
using kernels::kMostExpertGroups;
using kernels::kMostExperts;
using kernels::kMostIndexHeadDim;
using kernels::kMostIndexHeads;
using kernels::kMostLatentRotary;
using kernels::kMostLatentValues;
using kernels::kMostRoutedTo;
using kernels::kMostWideHeadDim;

}  // namespace slimexx::ops

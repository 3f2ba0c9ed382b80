// Largest model sizes that the ops support on a GPU; the CPU has no limits.
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

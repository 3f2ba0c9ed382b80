// Sampling parameters in the form that the op reads.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/array.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::ops::testing {

// Lives as long as the array does.
inline Array table_of(const std::vector<SamplingRow>& rows) {
  Array table({static_cast<int64_t>(rows.size()), static_cast<int64_t>(sizeof(SamplingRow))},
              DType::kU8);
  std::copy_n(rows.data(), rows.size(), table.view().data<SamplingRow>());
  return table;
}

}  // namespace slimexx::ops::testing

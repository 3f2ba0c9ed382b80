// The grid axis whose ranks sum the gradients of a parameter; each rank owns a slice of it.
#pragma once
#include "slimexx/dist/process_grid.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {

inline dist::GridAxis reduce_axis(ReduceGroup group) {
  switch (group) {
    case ReduceGroup::kDense:
      return dist::GridAxis::kDpCp;
    case ReduceGroup::kReplicated:
      return dist::GridAxis::kTpDpCp;
    case ReduceGroup::kExpert:
      break;
  }
  return dist::GridAxis::kEdp;
}

}  // namespace slimexx::model

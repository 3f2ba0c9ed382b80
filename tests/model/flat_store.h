// The flat weights and gradients of a store that has one group.
#pragma once
#include "slimexx/base/check.h"
#include "slimexx/model/parameters.h"

namespace slimexx::model {

inline const ParameterGroup& only_group(const ParameterStore& store) {
  SLX_CHECK_EQ(store.groups().size(), 1u);
  return store.groups()[0];
}
inline tensor::Tensor flat_weights(const ParameterStore& store) {
  return only_group(store).weights;
}
inline tensor::Tensor flat_gradients(const ParameterStore& store) {
  return only_group(store).gradients;
}

}  // namespace slimexx::model

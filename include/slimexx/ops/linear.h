// The weights of a product.
#pragma once
#include <cstdint>

#include "slimexx/tensor/tensor.h"

namespace slimexx::ops {

// A product reads `values` with `scales` if they are defined (FP8, see float8.h), otherwise
// `weight`. Backward always reads `weight`.
struct Linear {
  tensor::Tensor weight = {};  // [N,K] in the compute type; per expert [E,N,K]
  tensor::Tensor bias = {};    // [N], or undefined
  tensor::Tensor values = {};  // kF8E4M3, of the shape of `weight`
  tensor::Tensor scales = {};  // f32 [N/64, K/128]; per expert [E,N/64,K/128]

  bool is_fp8() const { return values.defined(); }
  const tensor::Tensor& operand() const { return is_fp8() ? values : weight; }
  int64_t rows() const { return operand().dim(-2); }     // N
  int64_t columns() const { return operand().dim(-1); }  // K
};

}  // namespace slimexx::ops

// Converts the tables of a rotation to the form that kernels take.
#pragma once
#include "slimexx/kernels/rows.h"
#include "slimexx/ops/rotary.h"

namespace slimexx::ops::cuda {

inline kernels::RotaryTables rotary_tables(const RotaryTable& rotary, const Tensor& positions) {
  return {.cos = rotary.cos.f32(),
          .sin = rotary.sin.f32(),
          .positions = positions.i32(),
          .rotary_dim = 2 * rotary.cos.dim(1),
          .interleaved = rotary.style == RotaryStyle::kInterleaved};
}

}  // namespace slimexx::ops::cuda

// Rows of f32 logits in the form that the vocabulary kernels read.
#pragma once
#include "slimexx/kernels/vocabulary.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::ops::cuda {

inline kernels::LogitRows logit_rows(const Tensor& logits) {
  return {.logits = logits.f32(),
          .stride = logits.stride(0),
          .rows = logits.dim(0),
          .columns = logits.dim(1)};
}

}  // namespace slimexx::ops::cuda

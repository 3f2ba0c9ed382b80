// What tensor-parallel ranks have of a few rows, summed, added to the residual stream and normed by
// one kernel: for steps of generation (Batch: every tp rank has all rows).
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Whether sum_add_rms_norm_forward serves rows of this width: few, on CUDA, where kernels of all
// tp ranks reach each other's memory. The same on all tp ranks. Never in planning: what stands for
// it takes more memory.
bool sums_in_norm(const Context& ctx, int64_t num_rows, int64_t width);

// add_rms_norm_forward (norm.h) where the branch is the sum in rank order of all tp ranks'
// terms[T,H] (N6). All tp ranks call it, and have the same x. x_sum may be x.
void sum_add_rms_norm_forward(const Context& ctx, Tensor y, Tensor x_sum, Tensor x, Tensor terms,
                              Tensor branch_norm, Tensor w, float eps);

}  // namespace slimexx::ops

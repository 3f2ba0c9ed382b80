// AdamW and the gradient norm over flat arrays on the device. Nothing is allocated, nothing
// synchronises; each function queues its kernels and returns cudaGetLastError().
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace slimexx::kernels {

enum class MomentType : uint8_t { kF32, kBf16 };
// Decoupled weight decay as in torch.optim.AdamW. `gradient_scale` multiplies the gradient first.
struct AdamWArgs {
  void* weights = nullptr;  // bf16, may be null: receives the rounded master weights
  float* master = nullptr;  // [n]
  void* exp_avg = nullptr;  // [n] of type `moments`, like exp_avg_sq
  void* exp_avg_sq = nullptr;
  const float* gradient = nullptr;  // the same length as `weights`
  int64_t n = 0;
  float lr = 0, beta1 = 0, beta2 = 0, eps = 0, gradient_scale = 1;
  // 1 - beta^t in double, so that the CPU's update divides by the same numbers.
  double bias_correction1 = 1, bias_correction2 = 1;
  // kBf16: moments are updated in f32; the master weights use the unrounded results; the stored
  // moments are rounded to nearest even.
  MomentType moments = MomentType::kF32;
};
// Elements [begin, end) of master and the moments, with their weight decay. Element i of a segment
// is element i + shift of weights and gradient. Segments ascend and do not overlap; elements
// between them are not changed.
struct AdamWSegment {
  int64_t begin = 0, end = 0;
  float weight_decay = 0;
  int64_t shift = 0;
};
// One launch for all segments; `segments` is device memory.
cudaError_t adamw(const AdamWArgs& args, const AdamWSegment* segments, int64_t num_segments,
                  cudaStream_t stream);

// sum[0] = the sum of x[i]^2 in double, in a fixed order; NaN and Inf pass through. sum is device
// memory.
size_t sum_of_squares_workspace(int64_t n);
cudaError_t sum_of_squares(double* sum, const float* x, int64_t n, void* workspace,
                           cudaStream_t stream);

// Like sum_of_squares, over ranges of x, none of them empty. lay_out_tiles numbers the tiles of the
// ranges and returns their count: the workspace holds that many doubles. `ranges` is device memory;
// a single range is passed as `first` instead. For the range [0, n) the bits equal those of
// sum_of_squares.
struct SquareRange {
  int64_t begin = 0, end = 0;
  int64_t first_tile = 0;
};
int64_t lay_out_tiles(SquareRange* ranges, int64_t num_ranges);
cudaError_t sum_of_squares(double* sum, const float* x, SquareRange first,
                           const SquareRange* ranges, int64_t num_ranges, int64_t tiles,
                           void* workspace, cudaStream_t stream);

}  // namespace slimexx::kernels

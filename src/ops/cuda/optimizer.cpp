#include "slimexx/kernels/optimizer.h"

#include <cmath>

#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/launch.h"

namespace slimexx::ops::cuda {

static_assert(sizeof(DecayRange) == sizeof(kernels::AdamWSegment) &&
              offsetof(DecayRange, weight_decay) == offsetof(kernels::AdamWSegment, weight_decay) &&
              offsetof(DecayRange, shift) == offsetof(kernels::AdamWSegment, shift));

void adamw_ranges(const Context& ctx, Tensor weights, Tensor master, Tensor exp_avg,
                  Tensor exp_avg_sq, Tensor gradient, std::span<const DecayRange> ranges,
                  const AdamWStep& step) {
  const ScratchScope scratch(ctx, ranges.size_bytes());
  if (ctx.planning() || ranges.empty()) return;
  tensor::upload(ctx.stream,
                 Tensor(scratch.data(), tensor::DType::kU8, ctx.device(),
                        {static_cast<int64_t>(ranges.size_bytes())}),
                 ranges.data());
  const double t = static_cast<double>(step.step);
  const bool is_rounded = weights.dtype() == tensor::DType::kBF16;
  SLX_CHECK(is_rounded || weights.dtype() == tensor::DType::kF32, "{}", weights.shape_text());
  const kernels::AdamWArgs args{
      .weights = is_rounded ? weights.raw() : nullptr,
      .master = master.f32(),
      .exp_avg = exp_avg.raw(),
      .exp_avg_sq = exp_avg_sq.raw(),
      .gradient = gradient.f32(),
      .n = master.dim(0),
      .lr = step.lr,
      .beta1 = step.beta1,
      .beta2 = step.beta2,
      .eps = step.eps,
      .gradient_scale = step.gradient_scale,
      .bias_correction1 = 1.0 - std::pow(static_cast<double>(step.beta1), t),
      .bias_correction2 = 1.0 - std::pow(static_cast<double>(step.beta2), t),
      .moments = exp_avg.dtype() == tensor::DType::kBF16 ? kernels::MomentType::kBf16
                                                         : kernels::MomentType::kF32};
  SLX_CUDA(kernels::adamw(args, static_cast<const kernels::AdamWSegment*>(scratch.data()),
                          static_cast<int64_t>(ranges.size()), handle(ctx)));
  if (is_rounded || weights.raw() == master.raw()) return;
  for (const DecayRange& r : ranges)  // f32 weights are a copy of the master
    tensor::copy_bytes(ctx.stream, weights.rows(r.begin + r.shift, r.end + r.shift),
                       master.rows(r.begin, r.end));
}

double sum_of_squares(const Context& ctx, Tensor x, std::span<const ElementRange> ranges) {
  std::vector<kernels::SquareRange> tiled;
  for (const ElementRange& r : ranges)
    if (r.begin < r.end) tiled.push_back({.begin = r.begin, .end = r.end});
  const auto count = static_cast<int64_t>(tiled.size());
  const int64_t tiles = kernels::lay_out_tiles(tiled.data(), count);
  constexpr size_t kResultBytes = 256;
  const size_t list_bytes = (tiled.size() * sizeof(kernels::SquareRange) + 255) / 256 * 256;
  const ScratchScope scratch(
      ctx, kResultBytes + list_bytes + static_cast<size_t>(tiles) * sizeof(double));
  if (ctx.planning()) return 0.0;
  auto* bytes = static_cast<char*>(scratch.data());
  auto* list = reinterpret_cast<kernels::SquareRange*>(bytes + kResultBytes);
  if (count > 1) {
    const auto list_size = static_cast<int64_t>(tiled.size() * sizeof(kernels::SquareRange));
    tensor::upload(ctx.stream, Tensor(list, tensor::DType::kU8, ctx.device(), {list_size}),
                   tiled.data());
  }
  const kernels::SquareRange first = count > 0 ? tiled[0] : kernels::SquareRange{};
  SLX_CUDA(kernels::sum_of_squares(reinterpret_cast<double*>(bytes), x.f32(), first, list, count,
                                   tiles, bytes + kResultBytes + list_bytes, handle(ctx)));
  double sum = 0.0;
  tensor::download(ctx.stream, &sum, Tensor(bytes, tensor::DType::kF64, ctx.device(), {1}));
  return sum;
}

}  // namespace slimexx::ops::cuda

#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

// The f32 step on widened copies of the bf16 moments, block by block.
void step_bf16_moments(const KernelTable& isa, float* master, uint16_t* exp_avg,
                       uint16_t* exp_avg_sq, const float* gradient, int64_t n,
                       const AdamWConstants& constants) {
  constexpr int64_t kBlock = 1024;
  alignas(64) float avg[kBlock], avg_sq[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    isa.widen_bf16(avg, exp_avg + at, count);
    isa.widen_bf16(avg_sq, exp_avg_sq + at, count);
    isa.adamw(master + at, avg, avg_sq, gradient + at, count, constants);
    isa.round_to_bf16(exp_avg + at, avg, count);
    isa.round_to_bf16(exp_avg_sq + at, avg_sq, count);
  }
}

}  // namespace

void adamw(Tensor weights, Tensor master, Tensor exp_avg, Tensor exp_avg_sq, Tensor gradient,
           const AdamWStep& step) {
  const double t = static_cast<double>(step.step);
  const double bias1 = 1.0 - std::pow(static_cast<double>(step.beta1), t);
  const double bias2 = 1.0 - std::pow(static_cast<double>(step.beta2), t);
  const AdamWConstants constants{
      .decay = static_cast<float>(1.0 - static_cast<double>(step.lr) * step.weight_decay),
      .beta1 = step.beta1,
      .one_minus_beta1 = static_cast<float>(1.0 - static_cast<double>(step.beta1)),
      .beta2 = step.beta2,
      .one_minus_beta2 = static_cast<float>(1.0 - static_cast<double>(step.beta2)),
      .step_size = static_cast<float>(step.lr / bias1),
      .inverse_root_bias2 = static_cast<float>(1.0 / std::sqrt(bias2)),
      .eps = step.eps,
      .gradient_scale = step.gradient_scale};
  const KernelTable& isa = kernels();
  const int64_t weight_bytes = tensor::dtype_bytes(weights.dtype());
  parallel_for(master.dim(0), 8192, [&](int64_t begin, int64_t end) {
    float* p = master.f32() + begin;
    if (exp_avg.dtype() == tensor::DType::kBF16) {
      step_bf16_moments(isa, p, exp_avg.data<uint16_t>() + begin,
                        exp_avg_sq.data<uint16_t>() + begin, gradient.f32() + begin, end - begin,
                        constants);
    } else {
      isa.adamw(p, exp_avg.f32() + begin, exp_avg_sq.f32() + begin, gradient.f32() + begin,
                end - begin, constants);
    }
    if (weights.dtype() == tensor::DType::kBF16)
      isa.round_to_bf16(weights.data<uint16_t>() + begin, p, end - begin);
    else if (weights.raw() != master.raw())
      tensor::convert_elements(tensor::DType::kF32, p, weights.dtype(),
                               weights.data<char>() + begin * weight_bytes, end - begin);
  });
}

double sum_of_squares(Tensor x) {
  constexpr int64_t kBlock = 4096;
  const KernelTable& isa = kernels();
  const int64_t n = x.num_elements(), num_blocks = (n + kBlock - 1) / kBlock;
  auto* sums = reinterpret_cast<double*>(thread_scratch(Scratch::kRowStatistics, 2 * num_blocks));
  parallel_for(num_blocks, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sums[i] = isa.sum_of_squares(x.f32() + i * kBlock, std::min(kBlock, n - i * kBlock));
  });
  double sum = 0.0;
  for (int64_t i = 0; i < num_blocks; ++i) sum += sums[i];
  return sum;
}

}  // namespace slimexx::ops::cpu

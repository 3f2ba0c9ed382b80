#include "slimexx/ops/heads.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/product.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kTokenGrain = 16;

float* head_of(const Tensor& x, int64_t head) { return x.f32() + head * x.dim(2); }
Rows rows_of_head(const Tensor& x, int64_t head) { return {head_of(x, head), x.stride(0)}; }

}  // namespace

void head_matmul_forward(Tensor y, Tensor x, Tensor w) {
  const int64_t n = w.dim(1), k = w.dim(2);
  for (int64_t head = 0; head < w.dim(0); ++head)
    multiply(forward_product(x.dim(0), n, k, rows_of_head(y, head), rows_of_head(x, head),
                             w.f32() + head * n * k));
}

void head_matmul_backward_input(Tensor dx, Tensor dy, Tensor w) {
  const int64_t n = w.dim(1), k = w.dim(2);
  for (int64_t head = 0; head < w.dim(0); ++head)
    multiply(input_gradient(dy.dim(0), n, k, rows_of_head(dx, head), rows_of_head(dy, head),
                            w.f32() + head * n * k));
}

void copy_head_columns(Tensor y, int64_t begin, Tensor x, int64_t x_begin, int64_t width) {
  parallel_for(y.dim(0), kTokenGrain, [&](int64_t first, int64_t end) {
    for (int64_t t = first; t < end; ++t)
      for (int64_t head = 0; head < y.dim(1); ++head)
        std::memcpy(head_of(y, head) + t * y.stride(0) + begin,
                    head_of(x, x.dim(1) == 1 ? 0 : head) + t * x.stride(0) + x_begin,
                    static_cast<size_t>(width) * sizeof(float));
  });
}

void sum_head_columns(Tensor y, Tensor x, int64_t x_begin) {
  const int64_t width = y.dim(1);
  parallel_for(y.dim(0), kTokenGrain, [&](int64_t first, int64_t end) {
    for (int64_t t = first; t < end; ++t) {
      float* sum = y.f32() + t * y.stride(0);
      std::fill(sum, sum + width, 0.0f);
      for (int64_t head = 0; head < x.dim(1); ++head) {
        const float* own = head_of(x, head) + t * x.stride(0) + x_begin;
        for (int64_t i = 0; i < width; ++i) sum[i] += own[i];
      }
    }
  });
}

}  // namespace slimexx::ops::cpu

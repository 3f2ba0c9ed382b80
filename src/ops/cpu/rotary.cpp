#include "ops/cpu/cpu_ops.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

// (a, b) <- (a c - b s, b c + a s) for pairs i: a = x[i * step], b = x[i * step + distance].
void rotate_head(float* x, const float* cos, const float* sin, int64_t half, int64_t step,
                 int64_t distance, float sign) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = x[i * step], b = x[i * step + distance], c = cos[i], s = sign * sin[i];
    x[i * step] = a * c - b * s;
    x[i * step + distance] = b * c + a * s;
  }
}

}  // namespace

void rotary(Tensor x, Tensor cos, Tensor sin, Tensor positions, RotaryStyle style, bool inverse,
            int64_t first) {
  const int64_t half = cos.dim(1), heads = x.dim(1), dim = x.dim(2);
  const bool half_split = style == RotaryStyle::kHalfSplit;
  const float sign = inverse ? -1.0f : 1.0f;
  parallel_for(x.dim(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t position = positions.i32()[t];
      SLX_CHECK(position >= 0 && position < cos.dim(0),
                "rotary: position {} of token {} exceeds a table of {}", position, t, cos.dim(0));
      for (int64_t h = 0; h < heads; ++h)
        rotate_head(x.f32() + t * x.stride(0) + h * dim + first, cos.f32() + position * half,
                    sin.f32() + position * half, half, half_split ? 1 : 2, half_split ? half : 1,
                    sign);
    }
  });
}

}  // namespace slimexx::ops::cpu

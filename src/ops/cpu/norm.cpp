#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

// The vectors to normalise: the rows of [T,H], or the heads of [T,heads,D] one after another.
class Vectors {
 public:
  explicit Vectors(const Tensor& x)
      : data_(x.f32()),
        per_row_(x.num_dims() == 3 ? x.dim(1) : 1),
        row_stride_(x.stride(0)),
        size_(x.dim(-1)),
        count_(x.dim(0) * per_row_) {}
  float* operator[](int64_t i) const {
    return data_ + i / per_row_ * row_stride_ + i % per_row_ * size_;
  }
  int64_t size() const { return size_; }
  int64_t count() const { return count_; }

 private:
  float* data_;
  int64_t per_row_, row_stride_, size_, count_;
};

int64_t grain(int64_t size) { return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, size)); }

float inverse_rms(const KernelTable& isa, const float* x, int64_t size, float eps) {
  return 1.0f / std::sqrt(isa.dot(x, x, size) / static_cast<float>(size) + eps);
}

}  // namespace

void norm_forward(Tensor y, Tensor x, Tensor w, float eps) {
  const KernelTable& isa = kernels();
  const Vectors in(x), out(y);
  parallel_for(in.count(), grain(in.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      isa.rms_norm_row(out[i], in[i], w.f32(), in.size(), inverse_rms(isa, in[i], in.size(), eps));
  });
}

void layer_norm_forward(Tensor y, Tensor x, Tensor w, Tensor b, float eps) {
  const KernelTable& isa = kernels();
  const Vectors in(x), out(y);
  parallel_for(in.count(), grain(in.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      isa.layer_norm_row(out[i], in[i], w.f32(), b.f32(), in.size(), eps);
  });
}

void norm_backward(Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w, float eps,
                   bool accumulate) {
  const KernelTable& isa = kernels();
  const Vectors in(x), gradient(dy), out(dx);
  // dw first: dx may share the memory of dy.
  float* r = thread_scratch(Scratch::kRowStatistics, in.count());
  parallel_for(in.count(), grain(in.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) r[i] = inverse_rms(isa, in[i], in.size(), eps);
  });
  parallel_for(in.size(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < in.count(); ++i)
      isa.accumulate_scaled_product(dw.f32() + begin, gradient[i] + begin, in[i] + begin,
                                    end - begin, r[i]);
  });
  parallel_for(in.count(), grain(in.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      isa.rms_norm_backward_row(out[i], gradient[i], in[i], w.f32(), in.size(), r[i], accumulate);
  });
}

}  // namespace slimexx::ops::cpu

#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements; below this a thread costs more than it saves

}  // namespace

void swiglu_forward(Tensor h, Tensor gate_up) {
  const KernelTable& isa = kernels();
  const int64_t f = h.dim(1);
  parallel_for(h.dim(0), 1 + kGrain / 4 / (f + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* row = gate_up.f32() + t * 2 * f;
      isa.swiglu_row(h.f32() + t * f, row, row + f, f);
    }
  });
}

void swiglu_backward(Tensor dgate_up, Tensor h, Tensor dh, Tensor gate_up) {
  const KernelTable& isa = kernels();
  const int64_t f = dh.dim(1);
  parallel_for(dh.dim(0), 1 + kGrain / 4 / (f + 1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* row = gate_up.f32() + t * 2 * f;
      float* out = dgate_up.f32() + t * 2 * f;
      float* own = h.defined() ? h.f32() + t * f : nullptr;
      isa.swiglu_backward_row(out, out + f, own, dh.f32() + t * f, row, row + f, f);
    }
  });
}

void add(Tensor y, Tensor a, Tensor b) {
  parallel_for(y.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y.f32()[i] = a.f32()[i] + b.f32()[i];
  });
}

void add_scaled(Tensor y, Tensor x, float factor) {
  parallel_for(y.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y.f32()[i] += factor * x.f32()[i];
  });
}

void scale(Tensor y, float factor) {
  parallel_for(y.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    kernels().scale_row(y.f32() + begin, end - begin, factor);
  });
}

void fill_zero(Tensor y) {
  if (y.num_elements() > 0) std::memset(y.raw(), 0, static_cast<size_t>(y.size_bytes()));
}

void copy(Tensor y, Tensor x) {
  const int64_t from = tensor::dtype_bytes(x.dtype()), to = tensor::dtype_bytes(y.dtype());
  parallel_for(y.num_elements(), kGrain, [&](int64_t begin, int64_t end) {
    const char* source = x.data<char>() + begin * from;
    char* target = y.data<char>() + begin * to;
    if (x.dtype() == y.dtype()) {
      std::memcpy(target, source, static_cast<size_t>((end - begin) * from));
    } else {
      tensor::convert_elements(x.dtype(), source, y.dtype(), target, end - begin);
    }
  });
}

void copy_rows(Tensor y, Tensor x) {
  const int64_t width = x.dim(1);
  parallel_for(x.dim(0), std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t) {
                   std::memcpy(y.f32() + t * y.stride(0), x.f32() + t * x.stride(0),
                               static_cast<size_t>(width) * 4);
                 }
               });
}

}  // namespace slimexx::ops::cpu

#include "slimexx/ops/experts.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/product.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kRowGrain = 16;  // rows

const int32_t* ints(const Tensor& t) { return t.data<int32_t>(); }

Rows rows_from(const Tensor& x, int64_t row) { return {x.f32() + row * x.dim(1), x.dim(1)}; }

// Calls body(expert, first row, number of rows), experts ascending, also for experts without rows.
void for_each_expert(const RoutedRows& routed,
                     const std::function<void(int64_t, int64_t, int64_t)>& body) {
  const int32_t* offsets = ints(routed.offsets);
  for (int64_t e = 0; e + 1 < routed.offsets.dim(0); ++e)
    body(e, offsets[e], offsets[e + 1] - offsets[e]);
}

}  // namespace

void sort_by_expert(const RoutedRows& routed, Tensor ids) {
  const int64_t experts = routed.offsets.dim(0) - 1, n = ids.num_elements(), k = ids.dim(1);
  int32_t* offsets = routed.offsets.data<int32_t>();
  std::fill(offsets, offsets + experts + 1, 0);
  for (int64_t choice = 0; choice < n; ++choice) {
    const int32_t expert = ints(ids)[choice];
    SLX_CHECK(expert >= 0 && expert < experts, "choice {} is expert {}, but there are {} experts",
              choice, expert, experts);
    ++offsets[expert + 1];
  }
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  std::vector<int32_t> next(offsets, offsets + experts);
  for (int64_t choice = 0; choice < n; ++choice) {
    const int32_t row = next[static_cast<size_t>(ints(ids)[choice])]++;
    routed.rows.data<int32_t>()[choice] = row;
    routed.choices.data<int32_t>()[row] = static_cast<int32_t>(choice);
    routed.tokens.data<int32_t>()[row] = static_cast<int32_t>(choice / k);
  }
}

void choose_copies(Tensor copies, Tensor ids, std::span<const int32_t> table) {
  for (int64_t choice = 0; choice < ids.num_elements(); ++choice) {
    const auto expert = static_cast<size_t>(ints(ids)[choice]);
    SLX_CHECK_LT(expert, table.size());
    copies.data<int32_t>()[choice] = table[expert];
  }
}

void combine_rows(Tensor y, Tensor rows, Tensor weights, Tensor shared, const RoutedRows& routed) {
  const int64_t width = y.dim(1), k = routed.rows.dim(1);
  parallel_for(y.dim(0), kRowGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* sum = y.f32() + t * width;
      std::fill(sum, sum + width, 0.0f);
      for (int64_t choice = t * k; choice < (t + 1) * k; ++choice) {
        const float weight = weights.defined() ? weights.f32()[choice] : 1.0f;
        const float* row = rows.f32() + ints(routed.rows)[choice] * width;
        for (int64_t i = 0; i < width; ++i) sum[i] += weight * row[i];
      }
      if (!shared.defined()) continue;
      for (int64_t i = 0; i < width; ++i) sum[i] += shared.f32()[t * width + i];
    }
  });
}

void expert_matmul_forward(Tensor y, Tensor x, Tensor w, const RoutedRows& routed) {
  const int64_t n = w.dim(1), k = w.dim(2);
  for_each_expert(routed, [&](int64_t expert, int64_t first, int64_t count) {
    const int64_t input = x.dim(0) == 1 ? 0 : first;  // one token: an expert has one row at most
    multiply(forward_product(count, n, k, rows_from(y, first), rows_from(x, input),
                             w.f32() + expert * n * k));
  });
}

void expert_matmul_backward_input(Tensor dx, Tensor dy, Tensor w, const RoutedRows& routed) {
  const int64_t n = w.dim(1), k = w.dim(2);
  for_each_expert(routed, [&](int64_t expert, int64_t first, int64_t count) {
    multiply(input_gradient(count, n, k, rows_from(dx, first), rows_from(dy, first),
                            w.f32() + expert * n * k));
  });
}

void expert_matmul_backward_weight(Tensor dw, Tensor dy, Tensor x, const RoutedRows& routed,
                                   bool accumulate) {
  const int64_t n = dw.dim(1), k = dw.dim(2);
  for_each_expert(routed, [&](int64_t expert, int64_t first, int64_t count) {
    multiply(weight_gradient(count, n, k, dw.f32() + expert * n * k, rows_from(dy, first),
                             rows_from(x, first), accumulate));
  });
}

void expert_swiglu_backward(Tensor dweights, Tensor h, Tensor gate_up, Tensor dh, Tensor weights,
                            const RoutedRows& routed) {
  const KernelTable& isa = kernels();
  const int64_t width = h.dim(1);
  const int64_t count = ints(routed.offsets)[routed.offsets.dim(0) - 1];
  parallel_for(count, kRowGrain, [&](int64_t begin, int64_t end) {
    std::vector<float> own(static_cast<size_t>(width)), scaled(static_cast<size_t>(width));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t choice = weights.num_dims() == 1 ? row : ints(routed.choices)[row];
      const float weight = weights.f32()[choice];
      float* gate = gate_up.f32() + row * 2 * width;
      isa.swiglu_row(own.data(), gate, gate + width, width);
      float sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        const auto at = static_cast<size_t>(i);
        const float d = dh.f32()[row * width + i];
        sum += d * own[at];
        scaled[at] = d * weight;
        h.f32()[row * width + i] = own[at] * weight;
      }
      dweights.f32()[choice] = sum;
      isa.swiglu_backward_row(gate, gate + width, nullptr, scaled.data(), gate, gate + width,
                              width);
    }
  });
}

}  // namespace slimexx::ops::cpu

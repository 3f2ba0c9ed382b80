// C[m,n] (+)= A[m,k] B[k,n] (+ bias[n]) on any strides: the driver around the register tiles of
// isa/matmul.inl. Every c is one chain of fused multiply-adds over ascending k that starts from 0
// (or from the old c), bias last: its bits do not depend on m, n, strides, tiles or threads.
#pragma once
#include <cstdint>

namespace slimexx::ops::cpu {

struct Product {
  int64_t m, n, k;
  const float* a;
  int64_t a_row_stride, a_column_stride;  // a(i, p)
  const float* b;
  int64_t b_n_stride, b_k_stride;  // b(p, j); one of the two is 1
  float* c;
  int64_t ldc;
  bool accumulate = false;
  const float* bias = nullptr;
};

void multiply(const Product& product);

}  // namespace slimexx::ops::cpu
